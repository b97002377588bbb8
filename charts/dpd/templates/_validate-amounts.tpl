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

{{/* A pod must fit on a node of each instance type: it would wait for ever while there are only those that it does not fit on. */}}
{{- define "dpd.validate.fit" -}}
{{- $asked := include "dpd.resources.pod" . | fromJson -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" "resources") .) -}}
{{- $alone := deepEqual $asked (include "dpd.resources.requests" (include "dpd.resources" . | fromJson) | fromJson) -}}
{{- $who := $alone | ternary "" (printf "in a %s pod with all its containers, " .component) -}}
{{- range $type := .root.Values.instanceTypes -}}
{{- range (include "dpd.instance.lacks" (dict "root" $.root "type" $type "asked" $asked) | fromJson).lines -}}
{{- printf "\n- %sresources: %s%s; ask for less or choose other instanceTypes" $at $who . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Engines that are to share one node must fit on it together. */}}
{{- define "dpd.validate.room" -}}
{{- $asked := dict -}}
{{- $number := dict -}}
{{- $whole := true -}}
{{- range $component := list "prefill" "decode" -}}
{{- $scope := dict "root" $ "component" $component -}}
{{- $_ := set $number $component (include "dpd.validate.fewest" $scope | int64) -}}
{{- range $name, $amount := include "dpd.resources.pod" $scope | fromJson -}}
{{- $_ := set $asked $name (addf (mulf $amount (get $number $component)) (get $asked $name | default 0.0)) -}}
{{- end -}}
{{- if and $.Values.placement.sameNode (ne (include "dpd.nodes" $scope) "1") -}}
{{- printf "\n- placement.sameNode: true, but a %s engine of %s GPUs spans %s nodes; set it to false, or lower model.tensorParallelSize" $component (include "dpd.ranks" $) (include "dpd.nodes" $scope) -}}
{{- $whole = false -}}
{{- end -}}
{{- end -}}
{{- if and .Values.placement.sameNode $whole -}}
{{- range $type := .Values.instanceTypes -}}
{{- range (include "dpd.instance.lacks" (dict "root" $ "type" $type "asked" $asked) | fromJson).lines -}}
{{- printf "\n- placement.sameNode: true, but for %d prefill and %d decode engines together, %s; set it to false, or lower model.tensorParallelSize, the numbers of engines or their resources" $number.prefill $number.decode . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
