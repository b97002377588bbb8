{{/*
Annotations of the router's Ingress as JSON: for the AWS Load Balancer Controller those that streams and stopping routers need,
and the user's over them.
*/}}
{{- define "dpd.ingress.annotations" -}}
{{- $router := .Values.router -}}
{{- $own := dict -}}
{{- if eq ($router.ingress.className | default "") "alb" -}}
{{- /* A client hears nothing while its KV moves and then while the decoder is silent. Both limits are those of AWS. */ -}}
{{- $silence := addf $router.timeouts.transferSeconds $router.timeouts.idleSeconds | ceil | int64 | min 4000 -}}
{{- $drain := ceil $router.timeouts.drainSeconds | int64 | min 3600 -}}
{{- $own = dict
  "alb.ingress.kubernetes.io/target-type" "ip"
  "alb.ingress.kubernetes.io/healthcheck-path" "/ready"
  "alb.ingress.kubernetes.io/load-balancer-attributes" (printf "idle_timeout.timeout_seconds=%d" $silence)
  "alb.ingress.kubernetes.io/target-group-attributes" (printf "deregistration_delay.timeout_seconds=%d" $drain)
-}}
{{- if $router.tls.secretName }}{{ $_ := set $own "alb.ingress.kubernetes.io/backend-protocol" "HTTPS" }}{{ end -}}
{{- end -}}
{{- include "dpd.overlay" (list $own $router.ingress.annotations) -}}
{{- end -}}

{{/* Rules of the Ingress, one per host, as JSON {rules}. */}}
{{- define "dpd.ingress.rules" -}}
{{- $service := dict "name" (printf "%s-router" (include "dpd.fullname" .)) "port" (dict "name" "http") -}}
{{- $http := dict "paths" (list (dict "path" "/" "pathType" "Prefix" "backend" (dict "service" $service))) -}}
{{- $rules := list -}}
{{- range .Values.router.ingress.hosts }}{{ $rules = append $rules (dict "host" . "http" $http) }}{{ end -}}
{{- toJson (dict "rules" ($rules | default (list (dict "http" $http)))) -}}
{{- end -}}
