{{/*
The values of a component as JSON: those of a role laid over those of engines. Maps merge by key, and null removes;
env, volumes, claims and containers merge by name, mounts by path, spread by topology and strictness; tolerations and envFrom add up; of
other lists the role's counts.
Arguments and resources have rules of their own: see _args.tpl and _resources.tpl.
*/}}
{{- define "dpd.values" -}}
{{- include "dpd.kept" (merge (dict "of" "dpd.values.merge") .) -}}
{{- end -}}

{{/* What the template .of says of a component. Many ask for it, so it is worked out once for a render and kept with the root. */}}
{{- define "dpd.kept" -}}
{{- $key := printf "%s of %s" .of .component -}}
{{- if not (hasKey .root "kept") }}{{ $_ := set .root "kept" dict }}{{ end -}}
{{- if not (hasKey .root.kept $key) }}{{ $_ := set .root.kept $key (include .of .) }}{{ end -}}
{{- get .root.kept $key -}}
{{- end -}}

{{/* The chart's own facts, files/*.yaml, as .facts of the root: parsed once for a render. */}}
{{- define "dpd.facts" -}}
{{- if not (hasKey . "facts") -}}
{{- $facts := dict -}}
{{- range $name := list "flags" "instances" "models" "names" }}{{ $_ := set $facts $name ($.Files.Get (printf "files/%s.yaml" $name) | fromYaml) }}{{ end -}}
{{- $_ := set $facts "environment" (.Files.Get "files/environment.yaml" | fromYamlArray) -}}
{{- $_ := set . "facts" $facts -}}
{{- end -}}
{{- end -}}

{{- define "dpd.values.merge" -}}
{{- $own := index .root.Values .component -}}
{{- if eq .component "router" -}}
{{- include "dpd.overlay" (list $own) -}}
{{- else -}}
{{- $shared := .root.Values.engines -}}
{{- $out := include "dpd.overlay" (list $shared $own) | fromJson -}}
{{- range $key := list "env" "volumes" "initContainers" "sidecars" "resourceClaims" -}}
{{- $_ := set $out $key (include "dpd.mergeBy" (dict "key" "name" "lists" (list (get $shared $key) (get $own $key))) | fromJson).items -}}
{{- end -}}
{{- $mounts := list -}}
{{- range concat ($shared.volumeMounts | default list) ($own.volumeMounts | default list) }}{{ $mounts = append $mounts (merge (dict "mountPath" (clean .mountPath)) .) }}{{ end -}}
{{- $_ := set $out "volumeMounts" (include "dpd.mergeBy" (dict "key" "mountPath" "lists" (list $mounts)) | fromJson).items -}}
{{- $spread := list $shared.topologySpreadConstraints $own.topologySpreadConstraints -}}
{{- $_ := set $out "topologySpreadConstraints" (include "dpd.mergeBy" (dict "key" "topologyKey" "and" "whenUnsatisfiable" "lists" $spread) | fromJson).items -}}
{{- range $key := list "tolerations" "envFrom" -}}
{{- $_ := set $out $key (concat (get $shared $key | default list) (get $own $key | default list) | uniq) -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}
{{- end -}}

{{/* Maps laid over each other, as JSON: also "", 0 and false replace, null removes. */}}
{{- define "dpd.overlay" -}}
{{- $out := dict -}}
{{- range $layer := . -}}
{{- range $key, $value := $layer -}}
{{- $below := get $out $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $below) -}}
{{- $value = include "dpd.overlay" (list $below $value) | fromJson -}}
{{- end -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- include "dpd.clean" $out -}}
{{- end -}}

{{/* A map as JSON, without its nulls at any depth. */}}
{{- define "dpd.clean" -}}
{{- $out := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $out $key (include "dpd.clean" $value | fromJson) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* Lists in one, as JSON {"items": …}: a later thing replaces an earlier one with the same .key (and the same .and, if given). */}}
{{- define "dpd.mergeBy" -}}
{{- $order := list -}}
{{- $found := dict -}}
{{- range .lists -}}
{{- range . | default list -}}
{{- $name := pick . $.key ($.and | default "") | toJson -}}
{{- $order = append $order $name -}}
{{- $_ := set $found $name . -}}
{{- end -}}
{{- end -}}
{{- $items := list -}}
{{- range uniq $order }}{{ $items = append $items (get $found .) }}{{ end -}}
{{- toJson (dict "items" $items) -}}
{{- end -}}
