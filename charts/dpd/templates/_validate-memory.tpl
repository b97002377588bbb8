{{/* The part of dpd.validate about memory of GPUs and hosts. It needs the model's numbers and the instance's, and is silent without them. */}}

{{/* Numbers of the model, as JSON: those of files/models.yaml with model.shape over them. */}}
{{- define "dpd.model.shape" -}}
{{- include "dpd.facts" . -}}
{{- $known := .facts.models -}}
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
{{- include "dpd.validate.host" . -}}
{{- end -}}

{{/*
GiB of host memory that each rank on a GPU takes beside caches and buffers: a process of vLLM with its libraries and what CUDA and NCCL
keep there for a GPU, and its part of what the processes around it have. The L1 cache is pinned, so none of it makes room for them.
*/}}
{{- define "dpd.rankGiB" -}}4{{- end -}}

{{/* What the ranks of a pod take of its memory: the engine itself, the prefiller's L1 cache, and the transfer buffer if it is there. */}}
{{- define "dpd.validate.host" -}}
{{- $kv := .root.Values.kvTransfer -}}
{{- $l1 := .root.Values.cache.l1 -}}
{{- $ranks := div (include "dpd.ranks" .root | int64) (include "dpd.nodes" . | int64) -}}
{{- $cached := and (eq .component "prefill") $l1.enabled | ternary (mulf $l1.sizeGiB $ranks) 0.0 -}}
{{- $buffers := eq $kv.bufferDevice "cpu" | ternary (mul (int64 $kv.bufferSize) $ranks) 0 -}}
{{- $engine := gt (include "dpd.gpus" . | int64) 0 | ternary (mul (include "dpd.rankGiB" . | int64) $ranks) 0 -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $memory := $resources.limits.memory | default $resources.requests.memory | default "0" -}}
{{- $bytes := include "dpd.amount" (dict "value" $memory) | float64 -}}
{{- if kindIs "float64" $memory }}{{ $memory = int64 $memory }}{{ end -}}
{{- $left := subf (divf $bytes 1073741824) $engine -}}
{{- $taken := gt $engine 0 | ternary (printf ", of which the engine itself takes %d GiB" $engine) "" -}}
{{- if and $bytes (gt $cached 0.0) (gt $cached $left) -}}
{{- $most := divf (floor (mulf 10 (divf (subf $left (divf $buffers 1073741824)) $ranks))) 10 -}}
{{- $lower := gt $most 0.0 | ternary (printf "set it to %v or less, " $most) "" -}}
{{- printf "\n- cache.l1.sizeGiB: %v for each rank makes %v GiB, too much for the %v of memory that a prefill pod asks for%s; %sraise the memory, or set cache.l1.enabled to false" $l1.sizeGiB $cached $memory $taken $lower -}}
{{- else if and $bytes $buffers (gt (addf $cached (divf $buffers 1073741824)) $left) -}}
{{- $beside := gt $cached 0.0 | ternary (printf " and %v GiB of cache.l1" $cached) "" -}}
{{- printf "\n- kvTransfer.bufferSize: %d for each rank makes %d bytes of host memory (kvTransfer.bufferDevice is cpu)%s, too much for the %v of memory that a %s pod asks for%s; lower it, or raise the memory" (int64 $kv.bufferSize) $buffers $beside $memory .component $taken -}}
{{- end -}}
{{- end -}}

{{/* Bytes of the weights on each GPU, if they divide evenly; the fullest has no less. 0 means not known, as when an argument makes them smaller. */}}
{{- define "dpd.weights" -}}
{{- $all := get (include "dpd.model.shape" .root | fromJson) "weightBytes" | int64 -}}
{{- $double := has .root.Values.model.dtype (list "float" "float32") | ternary 2 1 -}}
{{- if (include "dpd.args.present" (merge (dict "flags" "lessWeights") .) | fromJson).flags }}0{{ else }}{{ mul (div $all (include "dpd.ranks" .root | int64)) $double }}{{ end -}}
{{- end -}}

{{/*
What an engine puts on a GPU: the transfer buffer beside what vLLM takes. That is its share of the GPU, in which the weights and
the KV of one longest prompt must be, or the weights and as many bytes of KV as an argument says.
*/}}
{{- define "dpd.validate.gpu" -}}
{{- $model := .root.Values.model -}}
{{- $buffer := eq .root.Values.kvTransfer.bufferDevice "cuda" | ternary (int64 .root.Values.kvTransfer.bufferSize) 0 -}}
{{- $weights := include "dpd.weights" . | int64 -}}
{{- $prompt := mul (div (include "dpd.chunkBytes" . | int64) (int64 .root.Values.kvTransfer.chunkSize)) (int64 $model.maxLen) -}}
{{- $ranks := include "dpd.ranks" .root | int64 -}}
{{- $types := join ", " .root.Values.instanceTypes -}}
{{- $gpu := include "dpd.gpu.bytes" . | int64 -}}
{{- $usable := include "dpd.gpu.usable" . | int64 -}}
{{- $left := include "dpd.gpu.share" . -}}
{{- $flag := "--gpu-memory-utilization" -}}
{{- $given := include "dpd.args.value" (dict "role" . "flag" $flag) -}}
{{- $share := $given | default $left | default "0.9" | float64 -}}
{{- $unsaid := printf "%s, as %s has no %s" (empty $left | ternary "vLLM's default" "what the buffer leaves") .component $flag -}}
{{- $origin := empty $given | ternary $unsaid (printf "%s, %s" $flag .component) -}}
{{- $asked := include "dpd.args.value" (dict "role" . "flag" "--kv-cache-memory-bytes") -}}
{{- $binary := dict "k" 1e3 "K" 1024 "m" 1e6 "M" 1048576 "g" 1e9 "G" 1073741824 "t" 1e12 "T" 1099511627776 -}}
{{- $cache := include "dpd.amount" (dict "value" $asked "units" $binary) | float64 | int64 -}}
{{- $fixed := printf "--kv-cache-memory-bytes=%s, %s" $asked .component -}}
{{- if and $cache (lt $cache $prompt) -}}
{{- printf "\n- model.maxLen: %d tokens have %d bytes of KV on each GPU, more than the %d that vLLM keeps for it (%s); lower it, or raise that" (int64 $model.maxLen) $prompt $cache $fixed -}}
{{- end -}}
{{- if and $gpu (or $buffer (include "dpd.gpus" . | int64)) -}}
{{- if or $asked (not $share) -}}
{{- if and $cache (gt (add $buffer $weights $cache) $usable) -}}
{{- printf "\n- %s.args: %d bytes of KV (%s), with %d bytes of weights and %d of kvTransfer.bufferSize on each of %d GPUs, is more than the %d bytes that can be used of a GPU of %s; lower it or the buffer, or raise model.tensorParallelSize" .component $cache $fixed $weights $buffer $ranks $usable $types -}}
{{- else if gt (add $buffer $weights) $usable -}}
{{- printf "\n- kvTransfer.bufferSize: %d bytes, with %d bytes of weights on each of %d GPUs, is more than the %d bytes that can be used of a GPU of %s; lower it, or raise model.tensorParallelSize" $buffer $weights $ranks $usable $types -}}
{{- end -}}
{{- else -}}
{{- $room := mulf $share $gpu -}}
{{- $orShare := or (not (empty $given)) (empty $left) | ternary (printf " or %s" $flag) " or lower kvTransfer.bufferSize" -}}
{{- if gt $room (float64 $usable) -}}
{{- printf "\n- engines.args: %s is %v on %s, but of the %d bytes of a GPU of %s only %d can be used; lower it, such as to %s" $flag $share .component $gpu $types $usable ($left | default "0.9") -}}
{{- else if gt (addf $room $buffer) (float64 $usable) -}}
{{- $instead := empty $left | ternary "" (printf ", or set %s=%s" $flag $left) -}}
{{- printf "\n- kvTransfer.bufferSize: %d bytes does not fit beside vLLM's own %v of the %d bytes of a GPU of %s (%s), of which %d can be used; lower it%s" $buffer $share $gpu $types $origin $usable $instead -}}
{{- end -}}
{{- if gt (float64 $weights) $room -}}
{{- printf "\n- model.tensorParallelSize: each GPU of %d gets %d bytes of weights, more than vLLM's own %v of the %d bytes of a GPU of %s (%s); raise it%s, choose other instanceTypes, or set model.shape.weightBytes if your weights are smaller" $ranks $weights $share $gpu $types $origin $orShare -}}
{{- else if gt (addf $weights $prompt) $room -}}
{{- printf "\n- model.maxLen: %d tokens have %d bytes of KV on each GPU, which with %d bytes of weights is more than vLLM's own %v of the %d bytes of a GPU of %s (%s); lower it, raise model.tensorParallelSize%s, or set model.shape.weightBytes if your weights are smaller" (int64 $model.maxLen) $prompt $weights $share $gpu $types $origin $orShare -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
