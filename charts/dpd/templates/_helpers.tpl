{{/*
Name that all objects of the release start with. A release that has the chart's name in its own needs no more, but copies of the chart
under aliases do: their names may all be in it. Longer ones are cut, with a hash so that two never meet.
*/}}
{{- define "dpd.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $alone := and (eq .Chart.Name "dpd") (contains $name .Release.Name) -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) $alone -}}
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
{{- $values := include "dpd.values" . | fromJson -}}
{{- $selector := include "dpd.selector" . | fromYaml -}}
{{- include "dpd.overlay" (list .root.Values.commonLabels $values.podLabels $selector) | fromJson | toYaml -}}
{{- end -}}

{{/* Annotations of an object, as the entry of its metadata: those of all objects, then .annotations. */}}
{{- define "dpd.annotations" -}}
{{- with include "dpd.overlay" (list .root.Values.commonAnnotations .annotations) | fromJson -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The image of a component, as JSON. A digest goes with the repository and the tag it was given for. */}}
{{- define "dpd.image" -}}
{{- $image := dict -}}
{{- $engines := ternary dict .root.Values.engines.image (eq .component "router") -}}
{{- range $layer := list .root.Values.image $engines (index .root.Values .component).image -}}
{{- $layer = $layer | default dict -}}
{{- if or $layer.repository $layer.tag }}{{ $_ := set $image "digest" "" }}{{ end -}}
{{- $image = include "dpd.overlay" (list $image $layer) | fromJson -}}
{{- end -}}
{{- $reference := ternary (printf "%s@%s" $image.repository $image.digest) (printf "%s:%s" $image.repository $image.tag) (not (empty $image.digest)) -}}
{{- $_ := set $image "reference" $reference -}}
{{- $_ := set $image "bin" (empty $image.binDir | ternary "" (printf "%s/" (trimSuffix "/" $image.binDir))) -}}
{{- toJson $image -}}
{{- end -}}

{{- define "dpd.servedName" -}}
{{- .Values.model.servedName | default .Values.model.name -}}
{{- end -}}

{{/* The tokenizer that the router loads. */}}
{{- define "dpd.tokenizer" -}}
{{- .Values.model.tokenizer | default (include "dpd.model.path" .) -}}
{{- end -}}

{{/* Ranks of one engine: a GPU each. */}}
{{- define "dpd.ranks" -}}
{{- mul .Values.model.tensorParallelSize .Values.model.pipelineParallelSize -}}
{{- end -}}

{{/* Ports of the ranks from a first port on, as JSON {"ports": […]}. */}}
{{- define "dpd.rankPorts" -}}
{{- $ports := list -}}
{{- range $rank := until (int .ranks) }}{{ $ports = append $ports (add $.first $rank) }}{{ end -}}
{{- toJson (dict "ports" $ports) -}}
{{- end -}}
