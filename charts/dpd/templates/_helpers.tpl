{{/* Name that all objects of the release start with. Longer ones are cut, with a hash so that two never meet. */}}
{{- define "dpd.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full = .Values.fullnameOverride | default $full -}}
{{- if gt (len $full) 44 -}}
{{- $full = printf "%s-%s" (trunc 35 $full | trimAll "-") (sha256sum $full | trunc 8) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{/* Labels that select the pods of a component; nothing in them changes while a release lives. */}}
{{- define "dpd.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. */}}
{{- define "dpd.labels" -}}
{{- with include "dpd.clean" .root.Values.commonLabels | fromJson }}
{{- toYaml . }}
{{ end -}}
{{ include "dpd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dpd
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Labels of a pod: no version, so that a new chart alone restarts nothing. */}}
{{- define "dpd.podLabels" -}}
{{- $values := index .root.Values .component -}}
{{- $selector := include "dpd.selector" . | fromYaml -}}
{{- include "dpd.overlay" (list .root.Values.commonLabels $values.podLabels $selector) | fromJson | toYaml -}}
{{- end -}}

{{/* One map laid over another, as JSON: also "", 0 and false replace, null removes. */}}
{{- define "dpd.overlay" -}}
{{- $out := dict -}}
{{- range . }}{{ range $key, $value := . }}{{ $_ := set $out $key $value }}{{ end }}{{ end -}}
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

{{/* Lists of things with names in one, as JSON {"items": …}: a later one replaces an earlier one of the same name. */}}
{{- define "dpd.mergeByName" -}}
{{- $order := list -}}
{{- $byName := dict -}}
{{- range . -}}
{{- range . -}}
{{- $order = append $order .name -}}
{{- $_ := set $byName .name . -}}
{{- end -}}
{{- end -}}
{{- $items := list -}}
{{- range uniq $order }}{{ $items = append $items (index $byName .) }}{{ end -}}
{{- toJson (dict "items" $items) -}}
{{- end -}}

{{/* The image of a component, as JSON. A digest goes with the repository and the tag it was given for. */}}
{{- define "dpd.image" -}}
{{- $own := (index .root.Values .component).image | default dict -}}
{{- $image := include "dpd.overlay" (list .root.Values.image $own) | fromJson -}}
{{- if or $own.repository $own.tag }}{{ $_ := set $image "digest" ($own.digest | default "") }}{{ end -}}
{{- $reference := ternary (printf "%s@%s" $image.repository $image.digest) (printf "%s:%s" $image.repository $image.tag) (not (empty $image.digest)) -}}
{{- $_ := set $image "reference" $reference -}}
{{- $_ := set $image "bin" (empty $image.binDir | ternary "" (printf "%s/" (trimSuffix "/" $image.binDir))) -}}
{{- toJson $image -}}
{{- end -}}

{{- define "dpd.servedName" -}}
{{- .Values.model.servedName | default .Values.model.name -}}
{{- end -}}

{{- define "dpd.tokenizer" -}}
{{- .Values.model.tokenizer | default .Values.model.name -}}
{{- end -}}

{{/* Ports of the ranks from a first port on, as JSON {"ports": […]}. */}}
{{- define "dpd.rankPorts" -}}
{{- $ports := list -}}
{{- range $rank := until (int .ranks) }}{{ $ports = append $ports (add $.first $rank) }}{{ end -}}
{{- toJson (dict "ports" $ports) -}}
{{- end -}}
