{{/*
Devices of one node of the chosen instance types, as JSON: see files/instances.yaml. GPUs and EFA devices on which the types
differ are left out; of a GPU's memory the least counts.
*/}}
{{- define "dpd.instance" -}}
{{- include "dpd.kept" (merge (dict "of" "dpd.instance.facts") .) -}}
{{- end -}}

{{- define "dpd.instance.facts" -}}
{{- include "dpd.facts" .root -}}
{{- $catalogue := .root.facts.instances -}}
{{- $out := dict -}}
{{- range $fact := list "gpus" "efa" "gpuMiB" -}}
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

{{/*
The share of a node that the GPUs of an engine pod are, as JSON: of everything the least over the instance types, so that the pod fits
on each. Empty when one of them is not known, or has fewer GPUs.
*/}}
{{- define "dpd.instance.share" -}}
{{- include "dpd.facts" .root -}}
{{- $gpus := include "dpd.gpus" . | int64 -}}
{{- $least := dict -}}
{{- $fits := gt $gpus 0 -}}
{{- range .root.Values.instanceTypes -}}
{{- $node := get $.root.facts.instances (trimPrefix "ml." .) | default dict -}}
{{- $all := int64 $node.gpus -}}
{{- if or (not $fits) (gt $gpus $all) -}}
{{- $fits = false -}}
{{- else -}}
{{- $memory := mul (int64 $node.memoryGiB) $gpus -}}
{{- $share := dict "cpu" (div (mul (int64 $node.vcpus) $gpus) (mul 2 $all)) "memoryGiB" (div (mul $memory 7) (mul 10 $all)) -}}
{{- $_ := set $share "shmGiB" (max 1 (div $memory (mul 16 $all))) -}}
{{- $_ := set $share "efa" (max 1 (div (mul (int64 $node.efa) $gpus) $all)) -}}
{{- $_ := set $share "hugepagesMiB" (mul 2 (div (mul (int64 $node.hugepagesMiB) $gpus) (mul 2 $all))) -}}
{{- range $name, $amount := $share }}{{ $_ := set $least $name (min $amount (get $least $name | default $amount)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson ($fits | ternary $least dict) -}}
{{- end -}}

{{/* What an engine pod gets from its instance types, as JSON {requests, limits}. */}}
{{- define "dpd.instance.resources" -}}
{{- $share := include "dpd.instance.share" . | fromJson -}}
{{- $requests := dict -}}
{{- $limits := dict -}}
{{- if $share -}}
{{- $_ := set $limits "nvidia.com/gpu" (include "dpd.gpus" . | int64) -}}
{{- $requests = dict "cpu" (toString $share.cpu) "memory" (printf "%dGi" (int64 $share.memoryGiB)) -}}
{{- if eq .root.Values.kvTransfer.backend "LIBFABRIC" -}}
{{- if (include "dpd.instance" . | fromJson).efa }}{{ $_ := set $limits "vpc.amazonaws.com/efa" (int64 $share.efa) }}{{ end -}}
{{- if $share.hugepagesMiB }}{{ $_ := set $limits "hugepages-2Mi" (printf "%dMi" (int64 $share.hugepagesMiB)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "requests" $requests "limits" $limits) -}}
{{- end -}}

{{/* Size of an engine's /dev/shm: that of its values, or a sixteenth of its share of the node's memory. */}}
{{- define "dpd.shmSize" -}}
{{- $size := "16Gi" -}}
{{- with (include "dpd.instance.share" . | fromJson).shmGiB }}{{ $size = printf "%dGi" (int64 .) }}{{ end -}}
{{- $given := (include "dpd.values" . | fromJson).shm.size -}}
{{- if kindIs "float64" $given }}{{ $given = int64 $given }}{{ end -}}
{{- $given | default $size -}}
{{- end -}}

{{/*
What a node of an instance type leaves to the pods of a release, as parts of its CPU and memory. EKS keeps 80m of 4 CPUs. Of the 128 GiB
of a g5.8xlarge the kernel reports 124.4, and 121.6 can be asked for.
*/}}
{{- define "dpd.instance.forPods" -}}
{"cpu": 0.98, "memory": 0.95}
{{- end -}}

{{/*
What a node of instance type .type lacks of .asked, numbers by the names of resources, as JSON {lines}: none when it has all of that.
Huge pages are a part of its memory. The scheduler does not count /dev/shm.
*/}}
{{- define "dpd.instance.lacks" -}}
{{- include "dpd.facts" .root -}}
{{- $part := include "dpd.instance.forPods" . | fromJson -}}
{{- $asked := .asked -}}
{{- $type := .type -}}
{{- $lines := list -}}
{{- with get .root.facts.instances (trimPrefix "ml." $type) -}}
{{- range $name, $has := dict "nvidia.com/gpu" .gpus "vpc.amazonaws.com/efa" .efa -}}
{{- $devices := get $asked $name | int64 -}}
{{- if and (not (kindIs "invalid" $has)) (gt $devices (int64 $has)) -}}
{{- $lines = append $lines (printf "%d %s is more than the %v of %s" $devices $name $has $type) -}}
{{- end -}}
{{- end -}}
{{- $memory := 0.0 -}}
{{- range $name, $amount := $asked -}}
{{- if or (eq $name "memory") (hasPrefix "hugepages-" $name) }}{{ $memory = addf $memory (divf $amount 1073741824) }}{{ end -}}
{{- end -}}
{{- $cpu := get $asked "cpu" | float64 -}}
{{- if gt $cpu (mulf .vcpus $part.cpu) -}}
{{- $lines = append $lines (printf "%v CPUs are more than the %v that a node of %s leaves to pods of its %v" (round $cpu 3) (round (mulf .vcpus $part.cpu) 2) $type .vcpus) -}}
{{- end -}}
{{- if gt $memory (mulf .memoryGiB $part.memory) -}}
{{- $lines = append $lines (printf "%v GiB of memory and huge pages are more than the %v that a node of %s leaves to pods of its %v" (round $memory 3) (round (mulf .memoryGiB $part.memory) 2) $type .memoryGiB) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "lines" $lines) -}}
{{- end -}}
