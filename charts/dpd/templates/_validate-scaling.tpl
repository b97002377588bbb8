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
{{- $targets := or $scaling.queueDepth $scaling.inFlightTokens $scaling.ttftSeconds -}}
{{- $more := ternary $scaling.metrics $scaling.triggers (eq $scaling.type "hpa") -}}
{{- if not (or $targets $scaling.cpuPercent $more) -}}
{{- printf "\n- %s.type: %s has nothing to go by; set a target such as %s.%s" $key $scaling.type $key (ternary "cpuPercent" "queueDepth" (eq .component "router")) -}}
{{- end -}}
{{- if and (eq $scaling.type "keda") $targets (not .root.Values.prometheusAddress) -}}
{{- printf "\n- prometheusAddress: empty, but %s asks a Prometheus; set it, or only %s.triggers" $key $key -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.budget" -}}
{{- $budget := (include "dpd.values" . | fromJson).podDisruptionBudget | default dict -}}
{{- if and (hasKey $budget "minAvailable") (hasKey $budget "maxUnavailable") -}}
{{- printf "\n- %spodDisruptionBudget: has minAvailable and maxUnavailable, but takes one; set the other to null" .at -}}
{{- end -}}
{{- end -}}
