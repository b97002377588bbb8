{{/*
Annotations of the router's Ingress as JSON: for the AWS Load Balancer Controller those that streams and stopping routers need, for it
and for nginx that the router speaks HTTPS, and the user's over them.
*/}}
{{- define "dpd.ingress.annotations" -}}
{{- $router := .Values.router -}}
{{- $given := $router.ingress.annotations | default dict -}}
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
{{- end -}}
{{- if $router.tls.secretName }}{{ with include "dpd.ingress.protocol" . }}{{ $_ := set $own . "HTTPS" }}{{ end }}{{ end -}}
{{- $annotations := include "dpd.overlay" (list $own $given) | fromJson -}}
{{- /* These two are lists of settings: what the user's does not have of the chart's is added. */ -}}
{{- range $name := list "alb.ingress.kubernetes.io/load-balancer-attributes" "alb.ingress.kubernetes.io/target-group-attributes" -}}
{{- $setting := get $own $name -}}
{{- $list := get $annotations $name -}}
{{- if and $setting $list (not (contains (splitList "=" $setting | first) $list)) }}{{ $_ := set $annotations $name (printf "%s,%s" $list $setting) }}{{ end -}}
{{- end -}}
{{- toJson $annotations -}}
{{- end -}}

{{/* The annotation by which a controller is told what the router speaks, as far as the class tells which controller that is. */}}
{{- define "dpd.ingress.protocol" -}}
{{- $class := .Values.router.ingress.className | default "" -}}
{{- if eq $class "alb" -}}
alb.ingress.kubernetes.io/backend-protocol
{{- else if contains "nginx" $class -}}
nginx.ingress.kubernetes.io/backend-protocol
{{- end -}}
{{- end -}}

{{/* Rules of the Ingress, one per host, as JSON {rules}. */}}
{{- define "dpd.ingress.rules" -}}
{{- $service := dict "name" (printf "%s-router" (include "dpd.fullname" .)) "port" (dict "name" "http") -}}
{{- $http := dict "paths" (list (dict "path" "/" "pathType" "Prefix" "backend" (dict "service" $service))) -}}
{{- $rules := list -}}
{{- range .Values.router.ingress.hosts }}{{ $rules = append $rules (dict "host" . "http" $http) }}{{ end -}}
{{- toJson (dict "rules" ($rules | default (list (dict "http" $http)))) -}}
{{- end -}}
