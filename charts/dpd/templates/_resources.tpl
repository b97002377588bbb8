{{/* What one node of the chosen instance types has, as JSON {gpus, efa}; a count on which they differ is left out. */}}
{{- define "dpd.instance" -}}
{{- $catalogue := .Files.Get "files/instances.yaml" | fromYaml -}}
{{- $out := dict -}}
{{- range $count := list "gpus" "efa" -}}
{{- $seen := list -}}
{{- range $.Values.instanceTypes -}}
{{- $seen = append $seen (get (get $catalogue (trimPrefix "ml." .) | default dict) $count | toString) -}}
{{- end -}}
{{- $seen = uniq $seen -}}
{{- if and (eq (len $seen) 1) (regexMatch "^[0-9]+$" (first $seen)) }}{{ $_ := set $out $count (first $seen | int64) }}{{ end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* "yes" for resources whose requests must equal their limits: devices and huge pages. */}}
{{- define "dpd.isDevice" -}}
{{- if or (contains "/" .) (hasPrefix "hugepages-" .) }}yes{{ end -}}
{{- end -}}

{{/* Resources of an engine as JSON: what the instance type gives, the shared ones over it, the role's over both. */}}
{{- define "dpd.resources" -}}
{{- $instance := include "dpd.instance" .root | fromJson -}}
{{- $derived := dict -}}
{{- with $instance.gpus }}{{ $_ := set $derived "nvidia.com/gpu" . }}{{ end -}}
{{- if eq .root.Values.kvTransfer.backend "LIBFABRIC" -}}
{{- with $instance.efa }}{{ $_ := set $derived "vpc.amazonaws.com/efa" . }}{{ end -}}
{{- end -}}
{{- $out := dict "requests" (dict) "limits" (dict) -}}
{{- range $layer := list (dict "limits" $derived) .root.Values.resources (index .root.Values .component).resources -}}
{{- with ($layer | default dict).claims }}{{ $_ := set $out "claims" . }}{{ end -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $name, $amount := index ($layer | default dict) $kind -}}
{{- $device := include "dpd.isDevice" $name -}}
{{- if contains "/" $name }}{{ $amount = int64 $amount }}{{ end -}}
{{- range $target := ternary (list "requests" "limits") (list $kind) (eq $device "yes") -}}
{{- $_ := set (get $out $target) $name $amount -}}
{{- if and $device (eq (toString $amount) "0") }}{{ $_ := unset (get $out $target) $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "dpd.clean" $out -}}
{{- end -}}

{{/* "yes" when the user's resources of an engine name a resource. */}}
{{- define "dpd.resources.given" -}}
{{- range $layer := list .scope.root.Values.resources .scope.values.resources -}}
{{- range list "requests" "limits" }}{{ if hasKey (index ($layer | default dict) . | default dict) $.name }}yes{{ end }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* "yes" when the engines of a role move KV over EFA devices. */}}
{{- define "dpd.usesEfa" -}}
{{- $limits := (include "dpd.resources" . | fromJson).limits -}}
{{- if and (eq .root.Values.kvTransfer.backend "LIBFABRIC") (get $limits "vpc.amazonaws.com/efa") }}yes{{ end -}}
{{- end -}}
