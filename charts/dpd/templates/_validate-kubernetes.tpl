{{/* The part of dpd.validate about what Kubernetes refuses, in words of the values that led to it. */}}

{{/* Both kinds of security context, as they are after all merging. */}}
{{- define "dpd.validate.contexts" -}}
{{- $pod := include "dpd.context" (merge (dict "key" "podSecurityContext") .) | fromJson -}}
{{- $container := include "dpd.securityContext" . | fromJson -}}
{{- range $key, $context := dict "podSecurityContext" $pod "securityContext" $container -}}
{{- if and (kindIs "map" $context.seccompProfile) (not (hasKey $context.seccompProfile "type")) -}}
{{- printf "\n- %s.seccompProfile.type: missing, but Kubernetes needs it; set it, or seccompProfile to null" $key -}}
{{- end -}}
{{- end -}}
{{- $escalation := include "dpd.validate.contextAt" (merge (dict "key" "securityContext" "field" "allowPrivilegeEscalation") .) -}}
{{- if eq (toString $container.allowPrivilegeEscalation) "false" -}}
{{- if eq (toString $container.privileged) "true" -}}
{{- printf "\n- %s: true, but %s is false, and Kubernetes refuses the two together; set allowPrivilegeEscalation to null beside privileged" (include "dpd.validate.contextAt" (merge (dict "key" "securityContext" "field" "privileged") .)) $escalation -}}
{{- end -}}
{{- if has "CAP_SYS_ADMIN" (($container.capabilities | default dict).add | default list) -}}
{{- printf "\n- %s: CAP_SYS_ADMIN is added, but %s is false, and Kubernetes refuses the two together; set allowPrivilegeEscalation to null beside capabilities" (include "dpd.validate.contextAt" (merge (dict "key" "securityContext" "field" "capabilities") .)) $escalation -}}
{{- end -}}
{{- end -}}
{{- $effective := include "dpd.overlay" (list $pod $container) | fromJson -}}
{{- if and (eq (toString $effective.runAsNonRoot) "true") (eq (toString $effective.runAsUser) "0") -}}
{{- $at := dict -}}
{{- range $field := list "runAsUser" "runAsNonRoot" -}}
{{- $key := hasKey $container $field | ternary "securityContext" "podSecurityContext" -}}
{{- $_ := set $at $field (include "dpd.validate.contextAt" (merge (dict "key" $key "field" $field) $)) -}}
{{- end -}}
{{- printf "\n- %s: 0 is root, but %s is true, so no container would start; choose another user, or set runAsNonRoot to false beside it" $at.runAsUser $at.runAsNonRoot -}}
{{- end -}}
{{- end -}}

{{/* Where .field of a component's security context .key is said: by the component, by engines, or for all. */}}
{{- define "dpd.validate.contextAt" -}}
{{- $at := "" -}}
{{- if and (ne .component "router") (hasKey (get .root.Values.engines .key | default dict) .field) }}{{ $at = "engines." }}{{ end -}}
{{- if hasKey (get .values .key | default dict) .field }}{{ $at = .at }}{{ end -}}
{{- printf "%s%s.%s" $at .key .field -}}
{{- end -}}

{{/* A rollout must be able to take a pod away or to add one. A LeaderWorkerSet has other defaults, and looks at what a percentage comes to. */}}
{{- define "dpd.validate.strategy" -}}
{{- $groups := and (ne .component "router") (ne (include "dpd.nodes" .) "1") -}}
{{- $replicas := (index .root.Values .component).replicas -}}
{{- $count := kindIs "invalid" $replicas | ternary 1 $replicas | int64 -}}
{{- $rolling := ternary (dict "maxSurge" 0 "maxUnavailable" 1) (dict "maxSurge" "25%" "maxUnavailable" "25%") $groups -}}
{{- $rolling = include "dpd.overlay" (list $rolling (include "dpd.strategy" . | fromJson).rollingUpdate) | fromJson -}}
{{- $key := printf "%sstrategy.rollingUpdate" (include "dpd.validate.at" (merge (dict "key" "strategy") .)) -}}
{{- $moving := 0 -}}
{{- range $field, $value := $rolling -}}
{{- $number := regexFind "^[0-9]+" (toString $value) | int64 -}}
{{- if and (hasSuffix "%" (toString $value)) (or $groups (eq $field "maxUnavailable")) -}}
{{- if gt $number 100 }}{{ printf "\n- %s.%s: %s is more than all; set it to 100%% or less" $key $field $value }}{{ end -}}
{{- if and $groups (eq $field "maxUnavailable") }}{{ $number = div (mul $number $count) 100 }}{{ end -}}
{{- end -}}
{{- $moving = add $moving $number -}}
{{- end -}}
{{- if not (or $moving (and $groups (eq $count 0))) -}}
{{- printf "\n- %s: maxSurge %v and maxUnavailable %v let no pod be replaced; set one of them to 1" $key $rolling.maxSurge $rolling.maxUnavailable -}}
{{- end -}}
{{- end -}}

{{/* Lists in which Kubernetes takes nothing twice. */}}
{{- define "dpd.validate.twice" -}}
{{- $seen := list -}}
{{- range .values.resourceClaims -}}
{{- if has .name $seen }}{{ printf "\n- %sresourceClaims: %s is given twice; keep one" $.at .name }}{{ end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- $seen = list -}}
{{- range .values.topologySpreadConstraints -}}
{{- $pair := printf "%s with %s" .topologyKey .whenUnsatisfiable -}}
{{- if has $pair $seen }}{{ printf "\n- %stopologySpreadConstraints: %s is given twice; keep one" $.at $pair }}{{ end -}}
{{- $seen = append $seen $pair -}}
{{- end -}}
{{- end -}}

{{/*
Service accounts that the chart makes: two cannot have one name, and one is every namespace's own. One that it does not make it cannot
annotate, but a role that makes its own takes the engines' annotations too.
*/}}
{{- define "dpd.validate.accounts" -}}
{{- $made := dict -}}
{{- $heirs := list -}}
{{- range $component := list "prefill" "decode" -}}
{{- $account := include "dpd.account" (dict "root" $ "component" $component) | fromJson -}}
{{- if and $account.own $account.create }}{{ $heirs = append $heirs $component }}{{ end -}}
{{- end -}}
{{- range $component := list "engines" "prefill" "decode" "router" -}}
{{- $account := include "dpd.account" (dict "root" $ "component" $component) | fromJson -}}
{{- $annotated := not (empty ((get $.Values $component).serviceAccount | default dict).annotations) -}}
{{- if and $account.own $account.create -}}
{{- if eq $account.name "default" -}}
{{- printf "\n- %s.serviceAccount.name: \"default\" is made by Kubernetes, in every namespace; set %s.serviceAccount.create to false, or choose another name" $component $component -}}
{{- else if hasKey $made $account.name -}}
{{- printf "\n- %s.serviceAccount.name: %q is the account of %s too; set %s.serviceAccount.create to false, or choose another name" $component $account.name (get $made $account.name) $component -}}
{{- end -}}
{{- $_ := set $made $account.name $component -}}
{{- else if and $annotated (not (and (eq $component "engines") $heirs)) -}}
{{- printf "\n- %s.serviceAccount.annotations: not used, since the chart does not make %s; set %s.serviceAccount.create to true for an account of its own, or annotate that one yourself" $component $account.name $component -}}
{{- end -}}
{{- end -}}
{{- end -}}
