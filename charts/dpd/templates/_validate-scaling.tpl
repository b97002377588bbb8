{{/* The part of dpd.validate about how many pods there are and how they stop. */}}

{{/* A stopping pod must live as long as its preStop hook and its running requests may take. */}}
{{- define "dpd.validate.stopping" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $router := eq .component "router" -}}
{{- $key := ternary "timeouts.drainSeconds" "drainSeconds" $router -}}
{{- $drain := ternary ($values.timeouts | default dict).drainSeconds $values.drainSeconds $router | float64 -}}
{{- $sleep := dig "preStop" "sleep" "seconds" 0 ($values.lifecycle | default dict) | float64 -}}
{{- $grace := int64 $values.terminationGracePeriodSeconds -}}
{{- $atDrain := include "dpd.validate.at" (merge (dict "key" "drainSeconds") .) -}}
{{- $atGrace := include "dpd.validate.at" (merge (dict "key" "terminationGracePeriodSeconds") .) -}}
{{- if lt (float64 $grace) (addf $drain $sleep) -}}
{{- printf "\n- %sterminationGracePeriodSeconds: %d is too short for %s%s (%v) and the preStop hook (%v) before it; set it to %v or more" $atGrace $grace $atDrain $key $drain $sleep (addf $drain $sleep | ceil) -}}
{{- end -}}
{{- end -}}

{{/* The number of pods is a role's own. */}}
{{- define "dpd.validate.replicas" -}}
{{- with .Values.engines.replicas -}}
{{- printf "\n- engines.replicas: %v is of no use, since each role has its own number; set prefill.replicas and decode.replicas" . -}}
{{- end -}}
{{- end -}}

{{/* Who owns the number of pods, and by what. */}}
{{- define "dpd.validate.scaling" -}}
{{- $scaling := (include "dpd.values" . | fromJson).autoscaling -}}
{{- $key := printf "%sautoscaling" (include "dpd.validate.at" (merge (dict "key" "autoscaling") .)) -}}
{{- if ne $scaling.type "none" -}}
{{- $replicas := .values.replicas -}}
{{- if not (or (kindIs "invalid" $replicas) (eq (toString $replicas) "1")) -}}
{{- printf "\n- %sreplicas: %v, but %s.type is %s, which owns the number; remove it, and set %s.minReplicas and maxReplicas if need be" .at $replicas $key $scaling.type $key -}}
{{- end -}}
{{- end -}}
{{- if has $scaling.type (list "hpa" "keda") -}}
{{- if gt (int64 $scaling.minReplicas) (int64 $scaling.maxReplicas) -}}
{{- printf "\n- %s.minReplicas: %v is more than maxReplicas (%v); lower it" $key $scaling.minReplicas $scaling.maxReplicas -}}
{{- end -}}
{{- if and (eq $scaling.type "hpa") (eq (int64 $scaling.minReplicas) 0) -}}
{{- printf "\n- %s.minReplicas: 0, but a HorizontalPodAutoscaler keeps one pod; set it to 1, or type to keda" $key -}}
{{- end -}}
{{- with include "dpd.validate.asleep" (dict "scaling" $scaling "key" $key) }}{{ print "\n- " . }}{{ end -}}
{{- $targets := or $scaling.queueDepth $scaling.inFlightTokens $scaling.ttftSeconds -}}
{{- $more := ternary $scaling.metrics $scaling.triggers (eq $scaling.type "hpa") -}}
{{- if not (or $targets $scaling.cpuPercent $more) -}}
{{- printf "\n- %s.type: %s has nothing to go by; set a target such as %s.%s" $key $scaling.type $key (ternary "cpuPercent" "queueDepth" (eq .component "router")) -}}
{{- end -}}
{{- $ignored := ternary "triggers" "metrics" (eq $scaling.type "hpa") -}}
{{- with get $scaling $ignored -}}
{{- $read := ternary "metrics" "triggers" (eq $scaling.type "hpa") -}}
{{- printf "\n- %s.%s: has %d, but %s.type is %s, which reads only %s; give those, or set type to %s" $key $ignored (len .) $key $scaling.type $read (ternary "keda" "hpa" (eq $scaling.type "hpa")) -}}
{{- end -}}
{{- if and $scaling.cpuPercent (not (include "dpd.validate.cpu" .)) -}}
{{- printf "\n- %s.cpuPercent: %v is of the CPU that a pod asks for, but %sresources asks for none; set %sresources.requests.cpu, or cpuPercent to null" $key $scaling.cpuPercent .at .at -}}
{{- end -}}
{{- if and (eq .component "prefill") (eq .root.Values.router.mode "never") -}}
{{- printf "\n- %s.type: %s, but router.mode is never, so prefillers get no prompts to go by; set prefill.autoscaling.type to none" $key $scaling.type -}}
{{- end -}}
{{- if and (eq $scaling.type "keda") $targets (not .root.Values.prometheusAddress) -}}
{{- printf "\n- prometheusAddress: empty, but %s asks a Prometheus; set it, or only %s.triggers" $key $key -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Why nothing would bring a pod back once KEDA took the last one. It takes CPU and memory for no reason to start the first. */}}
{{- define "dpd.validate.asleep" -}}
{{- $waking := false -}}
{{- range .scaling.triggers }}{{ if not (has .type (list "cpu" "memory")) }}{{ $waking = true }}{{ end }}{{ end -}}
{{- if and (eq .scaling.type "keda") (eq (int64 .scaling.minReplicas) 0) (not $waking) -}}
{{- printf "%s.minReplicas: 0, but the chart's own targets are measured on running pods and what they serve, so nothing would start the first one; set it to 1, or add to %s.triggers one that needs no pod, such as of type cron" .key .key -}}
{{- end -}}
{{- end -}}

{{/* The fewest pods that a component is to have; empty when an autoscaler of the user's own says it. */}}
{{- define "dpd.validate.fewest" -}}
{{- $scaling := (include "dpd.values" . | fromJson).autoscaling -}}
{{- $replicas := (index .root.Values .component).replicas -}}
{{- if eq $scaling.type "keda" -}}
{{- int64 $scaling.minReplicas -}}
{{- else if eq $scaling.type "hpa" -}}
{{- int64 $scaling.minReplicas | max 1 -}}
{{- else if not (or (include "dpd.autoscaled" .) (kindIs "invalid" $replicas)) -}}
{{- int64 $replicas -}}
{{- end -}}
{{- end -}}

{{/* A router gets ready only when engines of both roles answer that it needs. A release with no engines at all sleeps on purpose. */}}
{{- define "dpd.validate.awake" -}}
{{- $router := .root.Values.router -}}
{{- $fewest := dict -}}
{{- range $component := list "prefill" "decode" "router" -}}
{{- $_ := set $fewest $component (include "dpd.validate.fewest" (dict "root" $.root "component" $component)) -}}
{{- end -}}
{{- $none := and (eq (get $fewest .component) "0") (or (ne $fewest.prefill "0") (ne $fewest.decode "0")) -}}
{{- $needed := not (and (eq .component "prefill") (eq $router.mode "never")) -}}
{{- if and $none $needed (ne $fewest.router "0") (not (get $router.engines .component)) -}}
{{- $key := printf "%sreplicas" .at -}}
{{- if include "dpd.autoscaled" . }}{{ $key = printf "%sautoscaling.minReplicas" (include "dpd.validate.at" (merge (dict "key" "autoscaling") .)) }}{{ end -}}
{{- $other := eq .component "prefill" | ternary "router.mode to never, " "" -}}
{{- printf "\n- %s: 0, but the router gets ready only when a %s engine answers, so without one it serves nothing; set it to 1 or more, %sor router.engines.%s to engines of elsewhere" $key .component $other .component -}}
{{- end -}}
{{- end -}}

{{/* "yes" when the router's container asks for CPU; a limit alone is a request too. */}}
{{- define "dpd.validate.cpu" -}}
{{- $resources := (include "dpd.values" . | fromJson).resources | default dict -}}
{{- $asked := include "dpd.overlay" (list $resources.limits $resources.requests) | fromJson -}}
{{- if regexMatch "[1-9]" (toString $asked.cpu) }}yes{{ end -}}
{{- end -}}

{{- define "dpd.validate.budget" -}}
{{- $budget := (include "dpd.values" . | fromJson).podDisruptionBudget | default dict -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" "podDisruptionBudget") .) -}}
{{- $nodes := eq .component "router" | ternary "1" (include "dpd.nodes" .) -}}
{{- if and (hasKey $budget "minAvailable") (hasKey $budget "maxUnavailable") -}}
{{- printf "\n- %spodDisruptionBudget: has minAvailable and maxUnavailable, but takes one; set the other to null" $at -}}
{{- end -}}
{{- if and (hasKey $budget "minAvailable") (ne $nodes "1") -}}
{{- printf "\n- %spodDisruptionBudget.minAvailable: %v counts pods, of which an engine over nodes has %s, and not engines; set maxUnavailable instead" $at $budget.minAvailable $nodes -}}
{{- end -}}
{{- end -}}
