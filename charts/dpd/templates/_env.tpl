{{/* Environment of an engine as JSON {"items": […]}: the chart's, then the shared one, then the role's. */}}
{{- define "dpd.engine.env" -}}
{{- $values := .root.Values -}}
{{- $own := list
  (dict "name" "PYTHONHASHSEED" "value" (printf "%d" (int64 $values.model.hashSeed)))
  (dict "name" "VLLM_HOST_IP" "value" "$(POD_IP)")
  (dict "name" "VLLM_HTTP_TIMEOUT_KEEP_ALIVE" "value" "90")
  (dict "name" "VLLM_NO_USAGE_STATS" "value" "1")
  (dict "name" "LMCACHE_CONFIG_FILE" "value" "/etc/dpd/lmcache.yaml")
  (dict "name" "LMCACHE_TRACK_USAGE" "value" "false")
  (dict "name" "DPD_ROLE" "value" .component)
  (dict "name" "DPD_CHUNK_SIZE" "value" (printf "%d" (int64 $values.kvTransfer.chunkSize)))
  (dict "name" "DPD_KV_BACKEND" "value" $values.kvTransfer.backend)
-}}
{{- if eq .component "decode" -}}
{{- $own = append $own (dict "name" "LMCACHE_PD_PEER_HOST" "value" "$(POD_IP)") -}}
{{- end -}}
{{- if include "dpd.usesEfa" . -}}
{{- $own = append $own (dict "name" "FI_PROVIDER" "value" "efa") -}}
{{- end -}}
{{- include "dpd.env" (dict "root" .root "component" .component "own" $own) -}}
{{- end -}}

{{/* Environment of any pod as JSON {"items": […]}; .own are the chart's variables of this component. */}}
{{- define "dpd.env" -}}
{{- $common := list
  (dict "name" "POD_IP" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP")))
  (dict "name" "PYTHONPATH" "value" "/opt/dpd/python")
  (dict "name" "HOME" "value" "/home/dpd")
  (dict "name" "USER" "value" "dpd")
  (dict "name" "TMPDIR" "value" "/tmp")
  (dict "name" "HF_HOME" "value" "/home/dpd/hf")
-}}
{{- include "dpd.mergeByName" (list $common .own .root.Values.env (index .root.Values .component).env) -}}
{{- end -}}
