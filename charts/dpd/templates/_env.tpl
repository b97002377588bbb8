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
  (dict "name" "DPD_REVISION" "value" (include "dpd.revision" .root))
-}}
{{- if eq .component "decode" -}}
{{- $own = append $own (dict "name" "LMCACHE_PD_PEER_HOST" "value" "$(POD_IP)") -}}
{{- end -}}
{{- if include "dpd.usesEfa" . -}}
{{- $own = append $own (dict "name" "FI_PROVIDER" "value" "efa") -}}
{{- $own = append $own (dict "name" "FI_EFA_ENABLE_SHM_TRANSFER" "value" "0") -}}
{{- end -}}
{{- if and (eq .component "prefill") (ne $values.cache.l2.type "none") $values.cache.l2.urlSecret.name -}}
{{- $own = append $own (dict "name" "LMCACHE_REMOTE_URL" "valueFrom" (dict "secretKeyRef" $values.cache.l2.urlSecret)) -}}
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
{{- $model := (include "dpd.model.env" .root | fromJson).items -}}
{{- $user := (include "dpd.values" . | fromJson).env -}}
{{- include "dpd.mergeBy" (dict "key" "name" "lists" (list $common $model .own $user)) -}}
{{- end -}}

{{/*
What prefill and decode must have alike, as 12 hex digits. A router pairs only engines of one revision, so that in the middle of
an upgrade no decoder reads KV of another model, image or layout, or hears another plugin's messages. Keys are named one by one: a new
one elsewhere restarts no engine.
*/}}
{{- define "dpd.revision" -}}
{{- include "dpd.facts" . -}}
{{- $flags := merge (dict) .facts.flags.agree .facts.flags.sharedOnly -}}
{{- $model := pick .Values.model "name" "tokenizer" "revision" "dtype" "tensorParallelSize" "pipelineParallelSize" "hashSeed" -}}
{{- $alike := dict "model" $model "files" (include "dpd.model.files" . | fromJson) "kv" (pick .Values.kvTransfer "backend" "chunkSize") -}}
{{- $_ := set $alike "messages" (.Files.Get "files/plugins/dpd-vllm/dpd_vllm/messages.py" | sha256sum) -}}
{{- range $component := list "prefill" "decode" -}}
{{- $role := dict "root" $ "component" $component -}}
{{- $shaping := list -}}
{{- range $flag, $value := include "dpd.args.shaping" (merge (dict "flags" $flags) $role) | fromJson -}}
{{- if ne $value (get $flags $flag) }}{{ $shaping = append $shaping (printf "%s=%s" $flag $value) }}{{ end -}}
{{- end -}}
{{- $_ := set $alike $component (dict "image" (include "dpd.image" $role | fromJson).reference "args" $shaping) -}}
{{- end -}}
{{- toJson $alike | sha256sum | trunc 12 -}}
{{- end -}}
