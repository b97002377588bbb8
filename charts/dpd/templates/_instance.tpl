{{/*
What one node of the chosen instance types has, as JSON: see files/instances.yaml. GPUs and EFA devices on which the types
differ are left out; of everything else the least counts.
*/}}
{{- define "dpd.instance" -}}
{{- include "dpd.kept" (merge (dict "of" "dpd.instance.facts") .) -}}
{{- end -}}

{{- define "dpd.instance.facts" -}}
{{- include "dpd.facts" .root -}}
{{- $catalogue := .root.facts.instances -}}
{{- $out := dict -}}
{{- range $fact := list "gpus" "efa" "gpuMiB" "vcpus" "memoryGiB" "hugepagesMiB" -}}
{{- $seen := list -}}
{{- range $.root.Values.instanceTypes -}}
{{- $seen = append $seen (get (get $catalogue (trimPrefix "ml." .) | default dict) $fact) -}}
{{- end -}}
{{- $seen = uniq $seen -}}
{{- if and $seen (not (has nil $seen)) (not (has "" $seen)) (or (eq (len $seen) 1) (not (has $fact (list "gpus" "efa")))) -}}
{{- $least := first $seen | int64 -}}
{{- range $seen }}{{ $least = min $least (int64 .) }}{{ end -}}
{{- $_ := set $out $fact $least -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* GPUs of one engine pod: those that its resources ask for, or as many as ranks or the instance there are. 0 means not known. */}}
{{- define "dpd.gpus" -}}
{{- $limits := (include "dpd.resources.given" . | fromJson).limits -}}
{{- $ranks := include "dpd.ranks" .root | int64 -}}
{{- $instance := include "dpd.instance" . | fromJson -}}
{{- if hasKey $limits "nvidia.com/gpu" -}}
{{- get $limits "nvidia.com/gpu" | int64 -}}
{{- else -}}
{{- min $ranks (get $instance "gpus" | int64) -}}
{{- end -}}
{{- end -}}

{{/* Pods of one engine: more than one when its ranks do not fit on a node. */}}
{{- define "dpd.nodes" -}}
{{- $ranks := include "dpd.ranks" .root | int64 -}}
{{- $gpus := include "dpd.gpus" . | int64 -}}
{{- if and $gpus (gt $ranks $gpus) }}{{ div (add $ranks $gpus -1) $gpus }}{{ else }}1{{ end -}}
{{- end -}}

{{/* What an engine pod gets from its instance type, as JSON {requests, limits}: the share of the node that its GPUs are. */}}
{{- define "dpd.instance.resources" -}}
{{- $instance := include "dpd.instance" . | fromJson -}}
{{- $gpus := include "dpd.gpus" . | int64 -}}
{{- $all := get $instance "gpus" | int64 -}}
{{- $requests := dict -}}
{{- $limits := dict -}}
{{- if and $gpus $all (le $gpus $all) -}}
{{- $_ := set $limits "nvidia.com/gpu" $gpus -}}
{{- with $instance.vcpus }}{{ $_ := set $requests "cpu" (div (mul (int64 .) $gpus) (mul 2 $all) | toString) }}{{ end -}}
{{- with $instance.memoryGiB }}{{ $_ := set $requests "memory" (printf "%dGi" (div (mul (int64 .) $gpus 7) (mul 10 $all))) }}{{ end -}}
{{- if eq .root.Values.kvTransfer.backend "LIBFABRIC" -}}
{{- with $instance.efa }}{{ $_ := set $limits "vpc.amazonaws.com/efa" (max 1 (div (mul (int64 .) $gpus) $all)) }}{{ end -}}
{{- with $instance.hugepagesMiB }}{{ $_ := set $limits "hugepages-2Mi" (printf "%dMi" (mul 2 (div (mul (int64 .) $gpus) (mul 2 $all)))) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "requests" $requests "limits" $limits) -}}
{{- end -}}

{{/* Size of an engine's /dev/shm: that of its values, or a sixteenth of its share of the node's memory. */}}
{{- define "dpd.shmSize" -}}
{{- $instance := include "dpd.instance" . | fromJson -}}
{{- $gpus := include "dpd.gpus" . | int64 -}}
{{- $size := "16Gi" -}}
{{- if and $gpus $instance.gpus $instance.memoryGiB -}}
{{- $size = printf "%dGi" (max 1 (div (mul (int64 $instance.memoryGiB) $gpus) (mul 16 (int64 $instance.gpus)))) -}}
{{- end -}}
{{- $given := (include "dpd.values" . | fromJson).shm.size -}}
{{- if kindIs "float64" $given }}{{ $given = int64 $given }}{{ end -}}
{{- $given | default $size -}}
{{- end -}}
