{{/* What every pod of the chart has, whatever it runs. */}}
{{- define "dpd.pod.common" -}}
{{- $values := include "dpd.values" . | fromJson -}}
serviceAccountName: {{ (include "dpd.account" . | fromJson).name | quote }}
enableServiceLinks: false
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ int64 $values.terminationGracePeriodSeconds }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "priorityClassName" "schedulerName" "runtimeClassName" }}
{{- with get $values $key }}
{{ $key }}: {{ quote . }}
{{- end }}
{{- end }}
{{- with include "dpd.context" (merge (dict "key" "podSecurityContext") .) | fromJson }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.resourceClaims }}
resourceClaims:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- (include "dpd.spread" . | fromJson).constraints | toYaml | nindent 2 }}
{{- with concat (include "dpd.model.copy" . | fromJson).containers ($values.initContainers | default list) }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The service account of "engines", a role or the router as JSON {name, create, annotations, own}: one for both roles, unless a role
says something of its own, over that one. An account that the chart makes for a role cannot have the shared one's name. One that it
does not make is, without a name, the one that every namespace has.
*/}}
{{- define "dpd.account" -}}
{{- $own := (index .root.Values .component).serviceAccount | default dict -}}
{{- $shared := ternary dict .root.Values.engines.serviceAccount (eq .component "router") -}}
{{- $account := include "dpd.overlay" (list (dict "create" true) $shared $own) | fromJson -}}
{{- $role := and (has .component (list "prefill" "decode")) (not (empty $own)) -}}
{{- if and $role $account.create (not $own.name) }}{{ $_ := unset $account "name" }}{{ end -}}
{{- $suffix := or $role (eq .component "router") | ternary .component "engine" -}}
{{- $unnamed := ternary (printf "%s-%s" (include "dpd.fullname" .root) $suffix) "default" $account.create -}}
{{- $_ := set $account "name" ($account.name | default $unnamed) -}}
{{- toJson (merge (dict "own" (or $role (has .component (list "engines" "router")))) $account) -}}
{{- end -}}

{{/* The service account of "engines", a role or the router, if the chart makes one for it. */}}
{{- define "dpd.serviceAccount" -}}
{{- $account := include "dpd.account" . | fromJson -}}
{{- if and $account.own $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- $component := eq .component "engines" | ternary "engine" .component }}
  {{- include "dpd.metadata" (dict "root" .root "component" $component "name" $account.name "annotations" $account.annotations) | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/* A security context of a component, as JSON: .key of all components, of the engines and its own; null in one takes away what those before say. */}}
{{- define "dpd.context" -}}
{{- $engines := ternary dict .root.Values.engines (eq .component "router") -}}
{{- include "dpd.overlay" (list (index .root.Values .key) (index $engines .key) (index .root.Values .component .key)) -}}
{{- end -}}

{{/* Security context of a component's containers, as JSON. */}}
{{- define "dpd.securityContext" -}}
{{- include "dpd.context" (merge (dict "key" "securityContext") .) -}}
{{- end -}}

{{/* How a component's Deployment replaces pods, as JSON; the default's rollingUpdate does not go with another type. */}}
{{- define "dpd.strategy" -}}
{{- $strategy := (include "dpd.values" . | fromJson).strategy | default dict -}}
{{- if eq ($strategy.type | default "") "Recreate" }}{{ $strategy = omit $strategy "rollingUpdate" }}{{ end -}}
{{- toJson $strategy -}}
{{- end -}}

{{/*
Hooks of a component's container, as JSON. A sleep of 0 is left out, which Kubernetes refuses before 1.33. The pods that follow
an engine's first wait for it instead: without them its requests could not end.
*/}}
{{- define "dpd.lifecycle" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $hooks := $values.lifecycle | default dict -}}
{{- if eq (dig "preStop" "sleep" "seconds" 1 $hooks | int64) 0 }}{{ $hooks = omit $hooks "preStop" }}{{ end -}}
{{- if and (eq (.part | default "") "worker") (or $hooks.preStop $values.drainSeconds) -}}
{{- $python := printf "%spython3" (include "dpd.image" . | fromJson).bin -}}
{{- $port := include "dpd.args.value" (dict "role" . "flag" "--master-port") | default "29501" -}}
{{- $_ := set $hooks "preStop" (dict "exec" (dict "command" (list $python "-m" "dpd_vllm.following" $port))) -}}
{{- end -}}
{{- toJson $hooks -}}
{{- end -}}

{{/* The probes of a component's container; a router that speaks HTTPS is asked by it, and its certificate is not checked. */}}
{{- define "dpd.probes" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $scheme := not (empty ($values.tls | default dict).secretName) | ternary (dict "scheme" "HTTPS") dict -}}
{{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" }}
{{- with get $values $probe }}
{{- if .httpGet }}{{ $_ := set . "httpGet" (merge .httpGet $scheme) }}{{ end }}
{{ $probe }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of a pod: places to write, since the image is read-only, the model's, then the user's. */}}
{{- define "dpd.volumes" -}}
- name: tmp
  emptyDir: {}
- name: home
  emptyDir: {}
{{- with concat (include "dpd.model.volumes" . | fromJson).volumes ((include "dpd.values" . | fromJson).volumes | default list) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts of a container: the chart's, the model's, then the user's. */}}
{{- define "dpd.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
- name: home
  mountPath: /home/dpd
- name: config
  mountPath: /etc/dpd
  readOnly: true
- name: plugin
  mountPath: /opt/dpd/python
  readOnly: true
{{- with concat (include "dpd.model.mounts" . | fromJson).mounts ((include "dpd.values" . | fromJson).volumeMounts | default list) }}
{{ toYaml . }}
{{- end }}
{{- end -}}
