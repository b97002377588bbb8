{{/* What every pod of the chart has, whatever it runs. */}}
{{- define "dpd.pod.common" -}}
{{- $values := index .root.Values .component -}}
enableServiceLinks: false
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ int64 $values.terminationGracePeriodSeconds }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "dpd.clean" .root.Values.podSecurityContext | fromJson }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "dpd.clean" $values.nodeSelector | fromJson }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How a component's Deployment replaces pods, as JSON; the default's rollingUpdate does not go with another type. */}}
{{- define "dpd.strategy" -}}
{{- $strategy := include "dpd.clean" (index .root.Values .component).strategy | fromJson -}}
{{- if eq ($strategy.type | default "") "Recreate" }}{{ $strategy = omit $strategy "rollingUpdate" }}{{ end -}}
{{- toJson $strategy -}}
{{- end -}}

{{/* The probes of a component's container. */}}
{{- define "dpd.probes" -}}
{{- $values := index .root.Values .component -}}
{{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" }}
{{- with include "dpd.clean" (index $values $probe) | fromJson }}
{{ $probe }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of a pod: places to write, since the image is read-only, then the user's. */}}
{{- define "dpd.volumes" -}}
- name: tmp
  emptyDir: {}
- name: home
  emptyDir: {}
{{- with (include "dpd.mergeByName" (list .root.Values.volumes (index .root.Values .component).volumes) | fromJson).items }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts of a container: the chart's, then the user's. */}}
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
{{- with concat (.root.Values.volumeMounts | default list) ((index .root.Values .component).volumeMounts | default list) }}
{{ toYaml . }}
{{- end }}
{{- end -}}
