{{/* LMCache's settings of a role. */}}
{{- define "dpd.engine.lmcache" -}}
{{- $kv := .root.Values.kvTransfer -}}
{{- $cache := .root.Values.cache -}}
{{- $ranks := include "dpd.ranks" .root -}}
{{- $prefill := eq .component "prefill" -}}
chunk_size: {{ int64 $kv.chunkSize }}
local_cpu: {{ and $prefill $cache.l1.enabled }}
{{- if and $prefill $cache.l1.enabled }}
max_local_cpu_size: {{ toJson $cache.l1.sizeGiB }}
{{- end }}
{{- if and $prefill (ne $cache.l2.type "none") (not $cache.l2.urlSecret.name) }}
remote_url: {{ include "dpd.cache.url" .root | toJson }}
{{- end }}
save_decode_cache: false
enable_pd: true
pd_role: {{ ternary "sender" "receiver" $prefill }}
pd_buffer_size: {{ int64 $kv.bufferSize }}
pd_buffer_device: {{ $kv.bufferDevice }}
transfer_channel: nixl
nixl_backends: [{{ $kv.backend }}]
{{- if not $prefill }}
pd_peer_init_port: {{ (include "dpd.rankPorts" (dict "first" $kv.ports.init "ranks" $ranks) | fromJson).ports | toJson }}
pd_peer_alloc_port: {{ (include "dpd.rankPorts" (dict "first" $kv.ports.alloc "ranks" $ranks) | fromJson).ports | toJson }}
{{- end }}
extra_config:
  dpd_allocation_timeout_seconds: {{ int64 $kv.allocationTimeoutSeconds }}
  dpd_pull_timeout_seconds: {{ int64 $kv.pullTimeoutSeconds }}
  {{- if and $prefill (ne $cache.l2.type "none") }}
  # Without the store LMCache goes on with what it has; by default it would also stop sending KV to decoders.
  fallback_policy: local_cpu
  {{- end }}
{{- end -}}

{{/* The address of the L2 cache as LMCache takes it; a folder's needs a host and a port too, which it does not look at. */}}
{{- define "dpd.cache.url" -}}
{{- $start := get (dict "redis" "redis://" "lmcache" "lm://" "file" "fs://localhost:1") .Values.cache.l2.type -}}
{{- print $start .Values.cache.l2.address -}}
{{- end -}}

{{/* Security context of an engine's container. EFA registers memory, which it must be allowed to lock. */}}
{{- define "dpd.engine.securityContext" -}}
{{- $context := include "dpd.securityContext" . | fromJson -}}
{{- if include "dpd.usesEfa" . -}}
{{- $capabilities := $context.capabilities | default dict -}}
{{- $add := append ($capabilities.add | default list) "IPC_LOCK" | uniq -}}
{{- $_ := set $context "capabilities" (merge (dict "add" $add) $capabilities) -}}
{{- end -}}
{{- toJson $context -}}
{{- end -}}

{{/*
The pod of an engine; prefill and decode differ only in what the helpers say of the component. .part is "leader" or "worker"
when an engine spans nodes: only the leader serves HTTP.
*/}}
{{- define "dpd.engine.pod" -}}
{{- $root := .root -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $image := include "dpd.image" . | fromJson -}}
metadata:
  labels:
    {{- include "dpd.podLabels" . | nindent 4 }}
  annotations:
    {{- with include "dpd.clean" $values.podAnnotations | fromJson }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    checksum/config: {{ include "dpd.engine.lmcache" . | sha256sum | quote }}
    checksum/plugin: {{ include "dpd.plugin.data" (dict "root" $root "package" "dpd-vllm") | sha256sum | quote }}
spec:
  {{- include "dpd.pod.common" . | nindent 2 }}
  {{- if $values.hostIPC }}
  hostIPC: true
  {{- end }}
  {{- with include "dpd.affinity" . | fromJson }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: engine
      image: {{ $image.reference | quote }}
      imagePullPolicy: {{ $image.pullPolicy }}
      command: [{{ printf "%svllm" $image.bin | toJson }}, "serve"]
      args:
        {{- (include "dpd.args" . | fromJson).items | toYaml | nindent 8 }}
      env:
        {{- (include "dpd.engine.env" . | fromJson).items | toYaml | nindent 8 }}
      {{- with $values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: 8000
        {{- if eq .component "decode" }}
        {{- range $rank := until (include "dpd.ranks" $root | int) }}
        - name: kv-init-{{ $rank }}
          containerPort: {{ add $root.Values.kvTransfer.ports.init $rank }}
        - name: kv-alloc-{{ $rank }}
          containerPort: {{ add $root.Values.kvTransfer.ports.alloc $rank }}
        {{- end }}
        {{- end }}
      {{- if ne (.part | default "") "worker" }}
      {{- include "dpd.probes" . | trim | nindent 6 }}
      {{- end }}
      {{- with include "dpd.lifecycle" . | fromJson }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      resources:
        {{- include "dpd.resources" . | fromJson | toYaml | nindent 8 }}
      securityContext:
        {{- include "dpd.engine.securityContext" . | fromJson | toYaml | nindent 8 }}
      volumeMounts:
        {{- include "dpd.volumeMounts" . | nindent 8 }}
        - name: shm
          mountPath: /dev/shm
    {{- with $values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "dpd.volumes" . | nindent 4 }}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ include "dpd.shmSize" . | quote }}
    - name: config
      configMap:
        name: {{ include "dpd.fullname" $root }}-{{ .component }}
    {{- include "dpd.plugin.volume" (dict "root" $root "package" "dpd-vllm" "suffix" "engine-plugin") | nindent 4 }}
{{- end -}}
