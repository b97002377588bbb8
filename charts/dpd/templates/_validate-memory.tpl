{{/* The part of dpd.validate about memory of GPUs and hosts. It needs the model's numbers and the instance's, and is silent without them. */}}

{{/* Numbers of the model, as JSON: those of files/models.yaml with model.shape over them. */}}
{{- define "dpd.model.shape" -}}
{{- $known := .Files.Get "files/models.yaml" | fromYaml -}}
{{- include "dpd.overlay" (list (get $known .Values.model.name | default dict) .Values.model.shape) -}}
{{- end -}}

{{/*
Bytes of one chunk of KV on one rank; 0 means not known. 2 x layers x tokens x heads x head size x bytes of a number, as LMCache
lays it out; MLA has one latent instead of keys and values, which every rank holds.
*/}}
{{- define "dpd.chunkBytes" -}}
{{- $shape := include "dpd.model.shape" .root | fromJson -}}
{{- $model := .root.Values.model -}}
{{- $tp := int64 $model.tensorParallelSize -}}
{{- $mla := not (empty $shape.mla) -}}
{{- $number := has $model.dtype (list "float" "float32") | ternary 4 2 -}}
{{- if include "dpd.args.value" (dict "role" . "flag" "--kv-cache-dtype") | contains "fp8" }}{{ $number = 1 }}{{ end -}}
{{- if and $shape.layers $shape.headSize (or $shape.kvHeads $mla) -}}
{{- $layers := div (add (int64 $shape.layers) (int64 $model.pipelineParallelSize) -1) (int64 $model.pipelineParallelSize) -}}
{{- $heads := $mla | ternary 1 (div (add (int64 $shape.kvHeads) $tp -1) $tp) -}}
{{- mul ($mla | ternary 1 2) $layers (int64 .root.Values.kvTransfer.chunkSize) $heads (int64 $shape.headSize) $number -}}
{{- else -}}0{{- end -}}
{{- end -}}

{{- define "dpd.validate.memory" -}}
{{- $values := .root.Values -}}
{{- $buffer := int64 $values.kvTransfer.bufferSize -}}
{{- $chunk := include "dpd.chunkBytes" . | int64 -}}
{{- $chunks := div (add (int64 $values.model.maxLen) (int64 $values.kvTransfer.chunkSize) -1) (int64 $values.kvTransfer.chunkSize) -}}
{{- $prompt := mul $chunk $chunks -}}
{{- if and (lt $buffer $prompt) (eq .component "decode") -}}
{{- printf "\n- kvTransfer.bufferSize: %d holds no prompt of model.maxLen (%d tokens), whose KV has %d bytes on each rank; set it to %d or more, or lower model.maxLen" $buffer (int64 $values.model.maxLen) $prompt $prompt -}}
{{- end -}}
{{- include "dpd.validate.gpu" . -}}
{{- if and (eq .component "prefill") $values.cache.l1.enabled -}}
{{- $l1 := mulf $values.cache.l1.sizeGiB (include "dpd.gpus" . | int64 | max 1) -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $memory := $resources.limits.memory | default $resources.requests.memory | default "" | toString -}}
{{- if and (regexMatch "^[0-9]+Gi$" $memory) (gt $l1 (trimSuffix "Gi" $memory | float64)) -}}
{{- printf "\n- cache.l1.sizeGiB: %v for each rank makes %v GiB, more than the %s of memory that a prefill pod asks for; lower it, or raise the memory" $values.cache.l1.sizeGiB $l1 $memory -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Bytes of the weights on each GPU, if they divide evenly; the fullest has no less. 0 means not known, as when an argument makes them smaller. */}}
{{- define "dpd.weights" -}}
{{- $all := get (include "dpd.model.shape" .root | fromJson) "weightBytes" | int64 -}}
{{- $double := has .root.Values.model.dtype (list "float" "float32") | ternary 2 1 -}}
{{- if (include "dpd.args.present" (merge (dict "flags" "lessWeights") .) | fromJson).flags }}0{{ else }}{{ mul (div $all (include "dpd.ranks" .root | int64)) $double }}{{ end -}}
{{- end -}}

{{/* What an engine puts on a GPU: vLLM's share, in which the weights are, and the transfer buffer beside it. */}}
{{- define "dpd.validate.gpu" -}}
{{- $buffer := eq .root.Values.kvTransfer.bufferDevice "cuda" | ternary (int64 .root.Values.kvTransfer.bufferSize) 0 -}}
{{- $weights := include "dpd.weights" . | int64 -}}
{{- $ranks := include "dpd.ranks" .root | int64 -}}
{{- $types := join ", " .root.Values.instanceTypes -}}
{{- $gpu := mul (get (include "dpd.instance" . | fromJson) "gpuMiB" | int64) 1048576 -}}
{{- $flag := "--gpu-memory-utilization" -}}
{{- $given := include "dpd.args.value" (dict "role" . "flag" $flag) -}}
{{- $share := $given | default "0.9" | float64 -}}
{{- $origin := empty $given | ternary (printf "vLLM's default, as %s has no %s" .component $flag) (printf "%s, %s" $flag .component) -}}
{{- $bytes := has "--kv-cache-memory-bytes" (include "dpd.args.present" (merge (dict "flags" "gpuRoom") .) | fromJson).flags -}}
{{- if and $gpu (or $buffer (include "dpd.gpus" . | int64)) -}}
{{- if or $bytes (not $share) -}}
{{- if gt (add $buffer $weights) $gpu -}}
{{- printf "\n- kvTransfer.bufferSize: %d bytes, with %d bytes of weights on each of %d GPUs, is more than the %d bytes that a GPU of %s has; lower it, or raise model.tensorParallelSize" $buffer $weights $ranks $gpu $types -}}
{{- end -}}
{{- else -}}
{{- if gt (addf (mulf $share $gpu) $buffer) (float64 $gpu) -}}
{{- printf "\n- kvTransfer.bufferSize: %d bytes does not fit beside vLLM's own %v of the %d bytes of a GPU of %s (%s); lower one of them" $buffer $share $gpu $types $origin -}}
{{- end -}}
{{- if gt (float64 $weights) (mulf $share $gpu) -}}
{{- printf "\n- model.tensorParallelSize: %d GPUs get %d bytes of weights each, more than vLLM's own %v of the %d bytes of a GPU of %s (%s); raise one of them, or choose other instanceTypes" $ranks $weights $share $gpu $types $origin -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
