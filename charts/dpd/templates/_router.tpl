{{/* The router's configuration. */}}
{{- define "dpd.router.config" -}}
{{- $values := .Values -}}
{{- $router := .Values.router -}}
{{- $ranks := include "dpd.ranks" . -}}
{{- $full := include "dpd.fullname" . -}}
listen:
  host: {{ .Values.bindAddress | toJson }}
  port: 8000
  {{- if $router.tls.secretName }}
  tls:
    certFile: /etc/dpd-tls/tls.crt
    keyFile: /etc/dpd-tls/tls.key
  {{- end }}
notify:
  port: {{ int64 .Values.kvTransfer.ports.notify }}
model:
  name: {{ include "dpd.servedName" . | toJson }}
  tokenizer: {{ include "dpd.tokenizer" . | toJson }}
  revision: {{ .Values.model.revision | toJson }}
  maxLen: {{ int64 .Values.model.maxLen }}
routing:
  mode: {{ $router.mode }}
  threshold: {{ int64 $router.threshold }}
prefill:
  addresses: {{ $router.engines.prefill | default (list (printf "%s-prefill:8000" $full)) | toJson }}
decode:
  addresses: {{ $router.engines.decode | default (list (printf "%s-decode:8000" $full)) | toJson }}
  initPorts: {{ (include "dpd.rankPorts" (dict "first" .Values.kvTransfer.ports.init "ranks" $ranks) | fromJson).ports | toJson }}
  allocPorts: {{ (include "dpd.rankPorts" (dict "first" .Values.kvTransfer.ports.alloc "ranks" $ranks) | fromJson).ports | toJson }}
timeouts:
  roomSeconds: {{ int64 .Values.kvTransfer.allocationTimeoutSeconds }}
  {{- range $name, $seconds := $router.timeouts }}
  {{ $name }}: {{ toJson $seconds }}
  {{- end }}
{{- end -}}
