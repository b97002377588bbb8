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
{{- $gpu := mul (get (include "dpd.instance" . | fromJson) "gpuMiB" | int64) 1048576 -}}
{{- if and $gpu (eq $values.kvTransfer.bufferDevice "cuda") -}}
{{- $ranks := include "dpd.ranks" .root | int64 -}}
{{- $weights := div (get (include "dpd.model.shape" .root | fromJson) "weightBytes" | int64) $ranks -}}
{{- $weights = mul $weights (has $values.model.dtype (list "float" "float32") | ternary 2 1) -}}
{{- if include "dpd.args.value" (dict "role" . "flag" "--quantization") }}{{ $weights = 0 }}{{ end -}}
{{- if gt (add $buffer $weights) $gpu -}}
{{- printf "\n- kvTransfer.bufferSize: %d bytes, with %d bytes of weights on each of %d GPUs, is more than the %d bytes that a GPU of %s has; lower it, or raise model.tensorParallelSize" $buffer $weights $ranks $gpu (join ", " $values.instanceTypes) -}}
{{- end -}}
{{- with include "dpd.args.value" (dict "role" . "flag" "--gpu-memory-utilization") -}}
{{- $share := float64 . -}}
{{- if gt (addf (mulf $share $gpu) $buffer) (float64 $gpu) -}}
{{- printf "\n- kvTransfer.bufferSize: %d bytes does not fit beside vLLM's own %v of the %d bytes of a GPU of %s (--gpu-memory-utilization, %s); lower one of them" $buffer $share $gpu (join ", " $values.instanceTypes) $.component -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .component "prefill") $values.cache.l1.enabled -}}
{{- $l1 := mulf $values.cache.l1.sizeGiB (include "dpd.gpus" . | int64 | max 1) -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $memory := $resources.limits.memory | default $resources.requests.memory | default "" | toString -}}
{{- if and (regexMatch "^[0-9]+Gi$" $memory) (gt $l1 (trimSuffix "Gi" $memory | float64)) -}}
{{- printf "\n- cache.l1.sizeGiB: %v for each rank makes %v GiB, more than the %s of memory that a prefill pod asks for; lower it, or raise the memory" $values.cache.l1.sizeGiB $l1 $memory -}}
{{- end -}}
{{- end -}}
{{- end -}}
