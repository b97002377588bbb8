{{/* The part of dpd.validate about the containers that a pod has beside the chart's own, once all values are merged. */}}

{{/* Containers of one pod have names of their own, and mount volumes that it has. */}}
{{- define "dpd.validate.beside" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $shared := ne .component "router" | ternary .root.Values.engines dict -}}
{{- $volumes := list "config" "plugin" -}}
{{- if ne .component "router" }}{{ $volumes = append $volumes "shm" }}{{ else if $values.tls.secretName }}{{ $volumes = append $volumes "tls" }}{{ end -}}
{{- range include "dpd.volumes" . | fromYamlArray }}{{ $volumes = append $volumes .name }}{{ end -}}
{{- range $key, $other := dict "initContainers" "sidecars" "sidecars" "initContainers" -}}
{{- $own := list -}}
{{- range index $.values $key }}{{ $own = append $own .name }}{{ end -}}
{{- range index $shared $other }}{{ if has .name $own -}}
{{- printf "\n- %s%s: %s is a container of engines.%s too; choose another name" $.at $key .name $other -}}
{{- end }}{{ end -}}
{{- range $container := index $values $key -}}
{{- $at := or (has .name $own) (eq $.component "router") | ternary $.at "engines." -}}
{{- range .volumeMounts }}{{ if not (has .name $volumes) -}}
{{- printf "\n- %s%s: %s mounts %s, but the pod has no volume of that name; add it to %svolumes" $at $key $container.name .name $at -}}
{{- end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
