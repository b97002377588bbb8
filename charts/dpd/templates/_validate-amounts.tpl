{{/* The part of dpd.validate about how much of each resource pods ask for. */}}

{{/* What Kubernetes would refuse in a container's resources once all values are merged; devices are looked at in each set of values. */}}
{{- define "dpd.validate.amounts" -}}
{{- $resources := (include "dpd.values" . | fromJson).resources | default dict -}}
{{- if ne .component "router" }}{{ $resources = include "dpd.resources" . | fromJson }}{{ end -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" "resources") .) -}}
{{- range $name, $limit := $resources.limits -}}
{{- $request := get ($resources.requests | default dict) $name | default "0" -}}
{{- $bytes := include "dpd.amount" (dict "value" $limit) | float64 -}}
{{- if and (not (include "dpd.isDevice" $name)) (gt (include "dpd.amount" (dict "value" $request) | float64) $bytes) -}}
{{- printf "\n- %sresources: %s is %s in requests and %s in limits, but a request is at most its limit; lower that, or raise the limit" $at $name (toJson $request | trimAll "\"") (toJson $limit | trimAll "\"") -}}
{{- end -}}
{{- if hasPrefix "hugepages-" $name -}}
{{- $page := trimPrefix "hugepages-" $name -}}
{{- if not (has $page (list "2Mi" "1Gi")) -}}
{{- printf "\n- %sresources: %s is of no size that pages have; ask for hugepages-2Mi or hugepages-1Gi" $at $name -}}
{{- else if mod (int64 $bytes) (include "dpd.amount" (dict "value" $page) | float64 | int64) -}}
{{- printf "\n- %sresources: %s is %s, which is no whole number of pages; choose a multiple of %s" $at $name (toJson $limit | trimAll "\"") $page -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
A pod must fit on a node of each instance type: it would wait for ever while there are only those that it does not fit on. A node keeps
some of its CPU and memory for itself, and huge pages are a part of its memory. The scheduler does not count /dev/shm.
*/}}
{{- define "dpd.validate.fit" -}}
{{- include "dpd.facts" .root -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $asked := merge (dict) $resources.requests $resources.limits -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" "resources") .) -}}
{{- $cpu := include "dpd.amount" (dict "value" ($asked.cpu | default 0)) | float64 -}}
{{- $memory := include "dpd.amount" (dict "value" ($asked.memory | default 0)) | float64 -}}
{{- $pages := 0.0 -}}
{{- range $name, $amount := $asked -}}
{{- if hasPrefix "hugepages-" $name }}{{ $pages = addf $pages (include "dpd.amount" (dict "value" $amount) | float64) }}{{ end -}}
{{- end -}}
{{- range $type := .root.Values.instanceTypes -}}
{{- with get $.root.facts.instances (trimPrefix "ml." $type) -}}
{{- range $name, $has := dict "nvidia.com/gpu" .gpus "vpc.amazonaws.com/efa" .efa -}}
{{- $devices := get $asked $name | int64 -}}
{{- if and (not (kindIs "invalid" $has)) (gt $devices (int64 $has)) -}}
{{- printf "\n- %sresources: %d %s is more than the %v of %s; ask for less or choose other instanceTypes" $at $devices $name $has $type -}}
{{- end -}}
{{- end -}}
{{- if ge $cpu (float64 .vcpus) -}}
{{- printf "\n- %sresources: cpu is %s, but a node of %s has %v and needs some of them itself; ask for less or choose other instanceTypes" $at (toJson $asked.cpu | trimAll "\"") $type .vcpus -}}
{{- end -}}
{{- if ge (addf $memory $pages) (mulf .memoryGiB 1073741824) -}}
{{- $beside := gt $pages 0.0 | ternary (printf ", with %.0fMi of huge pages" (divf $pages 1048576)) "" -}}
{{- printf "\n- %sresources: memory is %s%s, but a node of %s has %vGi and needs some of it itself; ask for less or choose other instanceTypes" $at (toJson $asked.memory | trimAll "\"") $beside $type .memoryGiB -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Engines that are to share one node must fit on it. */}}
{{- define "dpd.validate.room" -}}
{{- $asked := 0 -}}
{{- $number := dict -}}
{{- $has := 0 -}}
{{- range $component := list "prefill" "decode" -}}
{{- $scope := dict "root" $ "component" $component -}}
{{- $_ := set $number $component (include "dpd.validate.fewest" $scope | int64) -}}
{{- $asked = add $asked (mul (get $number $component) (include "dpd.gpus" $scope)) -}}
{{- $has = get (include "dpd.instance" $scope | fromJson) "gpus" | int64 -}}
{{- if and $.Values.placement.sameNode (ne (include "dpd.nodes" $scope) "1") -}}
{{- printf "\n- placement.sameNode: true, but a %s engine of %s GPUs spans %s nodes; set it to false, or lower model.tensorParallelSize" $component (include "dpd.ranks" $) (include "dpd.nodes" $scope) -}}
{{- $asked = 0 -}}
{{- end -}}
{{- end -}}
{{- if and .Values.placement.sameNode $has (gt $asked $has) -}}
{{- printf "\n- placement.sameNode: true, but %d prefill and %d decode engines ask for %d GPUs, more than the %d of one %s; set it to false, or lower model.tensorParallelSize or the numbers of engines" $number.prefill $number.decode $asked $has (join ", " .Values.instanceTypes) -}}
{{- end -}}
{{- end -}}
