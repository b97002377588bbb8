{{/*
Annotations of the router's Ingress as JSON: for the AWS Load Balancer Controller and for nginx those that streams, large prompts and
stopping routers need, that the router speaks HTTPS, and the user's over them.
*/}}
{{- define "dpd.ingress.annotations" -}}
{{- $router := .Values.router -}}
{{- $given := $router.ingress.annotations | default dict -}}
{{- $own := dict -}}
{{- $controller := include "dpd.ingress.controller" . -}}
{{- $silence := include "dpd.ingress.silence" . | int64 -}}
{{- if eq $controller "alb" -}}
{{- /* Both limits are those of AWS. */ -}}
{{- $silence = min 4000 $silence -}}
{{- $drain := ceil $router.timeouts.drainSeconds | int64 | min 3600 -}}
{{- $own = dict
  "alb.ingress.kubernetes.io/target-type" "ip"
  "alb.ingress.kubernetes.io/healthcheck-path" "/ready"
  "alb.ingress.kubernetes.io/load-balancer-attributes" (printf "idle_timeout.timeout_seconds=%d" $silence)
  "alb.ingress.kubernetes.io/target-group-attributes" (printf "deregistration_delay.timeout_seconds=%d" $drain)
-}}
{{- else if eq $controller "nginx" -}}
{{- $own = dict
  "nginx.ingress.kubernetes.io/proxy-read-timeout" (toString $silence)
  "nginx.ingress.kubernetes.io/proxy-body-size" "64m"
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

{{/* Seconds for which a client may hear nothing: while its KV moves, and then while the decoder is silent. */}}
{{- define "dpd.ingress.silence" -}}
{{- addf .Values.router.timeouts.transferSeconds .Values.router.timeouts.idleSeconds | ceil | int64 -}}
{{- end -}}

{{/* "alb" or "nginx", as far as the class tells which controller it is: by "alb" as a word of its name, or by "nginx" in it. */}}
{{- define "dpd.ingress.controller" -}}
{{- $class := .Values.router.ingress.className | default "" -}}
{{- if regexMatch "^(.*[-.])?alb([-.].*)?$" $class }}alb{{ else if contains "nginx" $class }}nginx{{ end -}}
{{- end -}}

{{/* The annotation by which a controller is told what the router speaks, as far as it is known which that is. */}}
{{- define "dpd.ingress.protocol" -}}
{{- with include "dpd.ingress.controller" . }}{{ . }}.ingress.kubernetes.io/backend-protocol{{ end -}}
{{- end -}}

{{/* Rules of the Ingress, one per host, as JSON {rules}. */}}
{{- define "dpd.ingress.rules" -}}
{{- $service := dict "name" (printf "%s-router" (include "dpd.fullname" .)) "port" (dict "name" "http") -}}
{{- $http := dict "paths" (list (dict "path" "/" "pathType" "Prefix" "backend" (dict "service" $service))) -}}
{{- $rules := list -}}
{{- range .Values.router.ingress.hosts }}{{ $rules = append $rules (dict "host" . "http" $http) }}{{ end -}}
{{- toJson (dict "rules" ($rules | default (list (dict "http" $http)))) -}}
{{- end -}}
