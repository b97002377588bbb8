{{/* A number as a Kubernetes quantity: whole, or in thousandths. */}}
{{- define "dpd.quantity" -}}
{{- if eq (floor .) (float64 .) }}{{ int64 . }}{{ else }}{{ printf "%dm" (mulf . 1000 | ceil | int64) }}{{ end -}}
{{- end -}}

{{/* The path of requests whose time to the first token tells about a role: those that went through a prefiller, or those that did not. */}}
{{- define "dpd.scaling.path" -}}
{{- if or (eq .component "prefill") (eq .root.Values.router.mode "always") }}disaggregated{{ else }}direct{{ end -}}
{{- end -}}

{{/* An external metric of this release's router, as JSON; .labels say which part of it. */}}
{{- define "dpd.hpa.external" -}}
{{- $own := dict "namespace" .root.Release.Namespace "service" (printf "%s-router" (include "dpd.fullname" .root)) -}}
{{- $metric := dict "name" .name "selector" (dict "matchLabels" (merge $own .labels)) -}}
{{- toJson (dict "type" "External" "external" (dict "metric" $metric "target" .target)) -}}
{{- end -}}

{{/*
What a HorizontalPodAutoscaler goes by, as JSON {metrics}. Of what is not CPU the chart's README says how a Prometheus adapter
provides it. The router's are asked for by namespace and service, labels that a ServiceMonitor writes; role and path are its own.
*/}}
{{- define "dpd.hpa.metrics" -}}
{{- $scaling := (include "dpd.values" . | fromJson).autoscaling -}}
{{- $metrics := list -}}
{{- with $scaling.queueDepth -}}
{{- $target := dict "type" "AverageValue" "averageValue" (include "dpd.quantity" .) -}}
{{- $pods := dict "metric" (dict "name" "vllm:num_requests_waiting") "target" $target -}}
{{- $metrics = append $metrics (dict "type" "Pods" "pods" $pods) -}}
{{- end -}}
{{- with $scaling.inFlightTokens -}}
{{- $target := dict "type" "AverageValue" "averageValue" (include "dpd.quantity" .) -}}
{{- $external := dict "root" $.root "name" "dpd_router_in_flight_tokens" "labels" (dict "role" $.component) "target" $target -}}
{{- $metrics = append $metrics (include "dpd.hpa.external" $external | fromJson) -}}
{{- end -}}
{{- with $scaling.ttftSeconds -}}
{{- $target := dict "type" "Value" "value" (include "dpd.quantity" .) -}}
{{- $labels := dict "path" (include "dpd.scaling.path" $) -}}
{{- $external := dict "root" $.root "name" "dpd_router_ttft_seconds_p90" "labels" $labels "target" $target -}}
{{- $metrics = append $metrics (include "dpd.hpa.external" $external | fromJson) -}}
{{- end -}}
{{- with $scaling.cpuPercent -}}
{{- /* Of the container, so that a sidecar without a CPU request takes nothing away. */ -}}
{{- $target := dict "type" "Utilization" "averageUtilization" (int64 .) -}}
{{- $container := dict "name" "cpu" "container" $.component "target" $target -}}
{{- $metrics = append $metrics (dict "type" "ContainerResource" "containerResource" $container) -}}
{{- end -}}
{{- toJson (dict "metrics" (concat $metrics ($scaling.metrics | default list))) -}}
{{- end -}}

{{/* Matchers of PromQL for a component's pods, by the labels that every usual way of scraping pods writes. Kubernetes ends their names without vowels. */}}
{{- define "dpd.keda.pods" -}}
{{- $name := printf "%s-%s" (include "dpd.fullname" .root) .component -}}
{{- printf "namespace=%q,pod=~%q" .root.Release.Namespace (printf "%s-[^aeiou-]+(-[^aeiou-]+)?" $name) -}}
{{- end -}}

{{/* What a ScaledObject goes by, as JSON {triggers}. No traffic gives no time to the first token, which KEDA takes for 0. */}}
{{- define "dpd.keda.triggers" -}}
{{- $scaling := (include "dpd.values" . | fromJson).autoscaling -}}
{{- $engines := include "dpd.keda.pods" . -}}
{{- $router := include "dpd.keda.pods" (dict "root" .root "component" "router") -}}
{{- $asked := list -}}
{{- with $scaling.queueDepth -}}
{{- $asked = append $asked (dict "type" "AverageValue" "threshold" . "query" (printf "sum(vllm:num_requests_waiting{%s})" $engines)) -}}
{{- end -}}
{{- with $scaling.inFlightTokens -}}
{{- $query := printf "sum(dpd_router_in_flight_tokens{%s,role=%q})" $router $.component -}}
{{- $asked = append $asked (dict "type" "AverageValue" "threshold" . "query" $query) -}}
{{- end -}}
{{- with $scaling.ttftSeconds -}}
{{- $series := printf "dpd_router_ttft_seconds_bucket{%s,path=%q}" $router (include "dpd.scaling.path" $) -}}
{{- $asked = append $asked (dict "type" "Value" "threshold" . "query" (printf "histogram_quantile(0.9, sum by (le) (rate(%s[2m])))" $series)) -}}
{{- end -}}
{{- $triggers := list -}}
{{- range $asked -}}
{{- $metadata := dict "serverAddress" (trimSuffix "/" $.root.Values.prometheusAddress) "query" .query "threshold" (toJson .threshold) -}}
{{- $triggers = append $triggers (dict "type" "prometheus" "metricType" .type "metadata" $metadata) -}}
{{- end -}}
{{- with $scaling.cpuPercent -}}
{{- $metadata := dict "containerName" $.component "value" (toJson .) -}}
{{- $triggers = append $triggers (dict "type" "cpu" "metricType" "Utilization" "metadata" $metadata) -}}
{{- end -}}
{{- toJson (dict "triggers" (concat $triggers ($scaling.triggers | default list))) -}}
{{- end -}}
