{{/* Bytes of a GPU of the chosen instance types as a number; 0 means not known. */}}
{{- define "dpd.gpu.bytes" -}}
{{- mul (get (include "dpd.instance" . | fromJson) "gpuMiB" | int64) 1048576 -}}
{{- end -}}

{{/*
Of those, the bytes that vLLM and the transfer buffer may take together. CUDA reports one or two hundredths less than the instance's
facts say, and the contexts of CUDA and NCCL take a part of what it reports.
*/}}
{{- define "dpd.gpu.usable" -}}
{{- mulf 0.97 (include "dpd.gpu.bytes" . | int64) | int64 -}}
{{- end -}}

{{/*
The share of a GPU that vLLM gets when no argument says one: its own default of 0.9, which leaves room for what it does not count
(graphs, contexts), less what the transfer buffer takes, in whole hundredths. Empty when the buffer or the GPU leaves nothing to say.
*/}}
{{- define "dpd.gpu.share" -}}
{{- $gpu := include "dpd.gpu.bytes" . | int64 -}}
{{- if and $gpu (eq .root.Values.kvTransfer.bufferDevice "cuda") -}}
{{- $buffer := int64 .root.Values.kvTransfer.bufferSize -}}
{{- $hundredths := sub 90 (div (add (mul $buffer 100) $gpu -1) $gpu) -}}
{{- if gt $hundredths 0 }}{{ printf "0.%02d" $hundredths }}{{ end -}}
{{- end -}}
{{- end -}}
