{{/*
Who may reach a component's pods; nobody else may. The rules follow from who opens connections: routers call engines by HTTP,
prefillers call the decoders' KV ports and report to routers, routers tell a decoder's first rank whose requests have ended, and no
decoder calls anybody.
What Kubernetes' own probes need is not listed: they come from the pod's node, which network plugins let through. Engines and
routers of elsewhere (router.engines) are not let in; write a NetworkPolicy of your own for them, which adds to this one.
*/}}
{{- define "dpd.networkPolicy" -}}
{{- if .root.Values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "dpd.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "dpd.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  {{- if and (ne .component "router") (eq .root.Values.kvTransfer.backend "LIBFABRIC") }}
  # KV over EFA does not pass here: the nodes' security group lets it through or not.
  {{- end }}
  ingress:
    {{- (include (printf "dpd.network.%s" .component) . | fromJson).rules | toYaml | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* All pods of a component of this release as a peer, as JSON. */}}
{{- define "dpd.network.pods" -}}
{{- toJson (dict "podSelector" (dict "matchLabels" (include "dpd.selector" . | fromYaml))) -}}
{{- end -}}

{{/* Ports of all ranks from a first port on, as JSON. One range, since the VPC CNI takes at most 24 ports from an address. */}}
{{- define "dpd.network.rankPorts" -}}
{{- $last := sub (add .first (include "dpd.ranks" .root)) 1 -}}
{{- toJson (dict "protocol" "TCP" "port" (int64 .first) "endPort" $last) -}}
{{- end -}}

{{/* Rules of what both roles let in, as JSON {rules}. */}}
{{- define "dpd.network.engine" -}}
{{- $router := include "dpd.network.pods" (dict "root" .root "component" "router") | fromJson -}}
{{- $callers := concat (list $router) (.root.Values.networkPolicy.metrics | default list) -}}
{{- $rules := list (dict "from" $callers "ports" (list (dict "protocol" "TCP" "port" 8000))) -}}
{{- if eq .root.Values.kvTransfer.backend "UCX" -}}
{{- /* UCX picks a port for each connection, and either side may open one. */ -}}
{{- $other := ternary "decode" "prefill" (eq .component "prefill") -}}
{{- $peer := include "dpd.network.pods" (dict "root" .root "component" $other) | fromJson -}}
{{- $rules = append $rules (dict "from" (list $peer) "ports" (list (dict "protocol" "TCP"))) -}}
{{- end -}}
{{- if ne (include "dpd.nodes" .) "1" -}}
{{- /* The pods of one engine; a policy cannot tell them from those of another engine of the role. */ -}}
{{- $rules = append $rules (dict "from" (list (include "dpd.network.pods" . | fromJson))) -}}
{{- end -}}
{{- toJson (dict "rules" $rules) -}}
{{- end -}}

{{- define "dpd.network.prefill" -}}
{{- include "dpd.network.engine" . -}}
{{- end -}}

{{- define "dpd.network.decode" -}}
{{- $ports := list -}}
{{- range $name := list "init" "alloc" -}}
{{- $first := get $.root.Values.kvTransfer.ports $name -}}
{{- $ports = append $ports (include "dpd.network.rankPorts" (dict "root" $.root "first" $first) | fromJson) -}}
{{- end -}}
{{- $prefill := include "dpd.network.pods" (dict "root" .root "component" "prefill") | fromJson -}}
{{- $router := include "dpd.network.pods" (dict "root" .root "component" "router") | fromJson -}}
{{- $releases := dict "protocol" "TCP" "port" (int64 .root.Values.kvTransfer.ports.alloc) -}}
{{- $rules := (include "dpd.network.engine" . | fromJson).rules -}}
{{- $rules = append $rules (dict "from" (list $prefill) "ports" $ports) -}}
{{- toJson (dict "rules" (append $rules (dict "from" (list $router) "ports" (list $releases)))) -}}
{{- end -}}

{{/*
Whoever may read the engines' metrics may read those of the router, even if its clients are listed. An ingress controller or a
load balancer is such a client too.
*/}}
{{- define "dpd.network.router" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- $http := dict "ports" (list (dict "protocol" "TCP" "port" 8000)) -}}
{{- with $policy.clients }}{{ $_ := set $http "from" (concat . ($policy.metrics | default list)) }}{{ end -}}
{{- $prefill := include "dpd.network.pods" (dict "root" .root "component" "prefill") | fromJson -}}
{{- $notify := dict "protocol" "TCP" "port" (int64 .root.Values.kvTransfer.ports.notify) -}}
{{- toJson (dict "rules" (list $http (dict "from" (list $prefill) "ports" (list $notify)))) -}}
{{- end -}}
