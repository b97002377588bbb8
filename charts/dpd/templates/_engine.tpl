{{/* LMCache's settings of a role. */}}
{{- define "dpd.engine.lmcache" -}}
{{- $kv := .root.Values.kvTransfer -}}
{{- $ranks := .root.Values.model.tensorParallelSize -}}
chunk_size: {{ int64 $kv.chunkSize }}
local_cpu: false
save_decode_cache: false
enable_pd: true
pd_role: {{ ternary "receiver" "sender" (eq .component "decode") }}
pd_buffer_size: {{ int64 $kv.bufferSize }}
pd_buffer_device: {{ $kv.bufferDevice }}
transfer_channel: nixl
nixl_backends: [{{ $kv.backend }}]
{{- if eq .component "decode" }}
pd_peer_init_port: {{ (include "dpd.rankPorts" (dict "first" $kv.ports.init "ranks" $ranks) | fromJson).ports | toJson }}
pd_peer_alloc_port: {{ (include "dpd.rankPorts" (dict "first" $kv.ports.alloc "ranks" $ranks) | fromJson).ports | toJson }}
{{- end }}
extra_config:
  dpd_allocation_timeout_seconds: {{ int64 $kv.allocationTimeoutSeconds }}
  dpd_pull_timeout_seconds: {{ int64 $kv.pullTimeoutSeconds }}
{{- end -}}

{{/* Security context of an engine's container. EFA registers memory, which it must be allowed to lock. */}}
{{- define "dpd.engine.securityContext" -}}
{{- $context := include "dpd.clean" .root.Values.securityContext | fromJson -}}
{{- if include "dpd.usesEfa" . -}}
{{- $capabilities := $context.capabilities | default dict -}}
{{- $add := append ($capabilities.add | default list) "IPC_LOCK" | uniq -}}
{{- $_ := set $context "capabilities" (merge (dict "add" $add) $capabilities) -}}
{{- end -}}
{{- toJson $context -}}
{{- end -}}

{{/* The pod of an engine; prefill and decode differ only in what the helpers say of the component. */}}
{{- define "dpd.engine.pod" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .component -}}
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
  serviceAccountName: {{ include "dpd.fullname" $root }}-engine
  {{- include "dpd.pod.common" . | nindent 2 }}
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
      ports:
        - name: http
          containerPort: 8000
        {{- if eq .component "decode" }}
        {{- range $rank := until (int $root.Values.model.tensorParallelSize) }}
        - name: kv-init-{{ $rank }}
          containerPort: {{ add $root.Values.kvTransfer.ports.init $rank }}
        - name: kv-alloc-{{ $rank }}
          containerPort: {{ add $root.Values.kvTransfer.ports.alloc $rank }}
        {{- end }}
        {{- end }}
      {{- include "dpd.probes" . | trim | nindent 6 }}
      resources:
        {{- include "dpd.resources" . | fromJson | toYaml | nindent 8 }}
      securityContext:
        {{- include "dpd.engine.securityContext" . | fromJson | toYaml | nindent 8 }}
      volumeMounts:
        {{- include "dpd.volumeMounts" . | nindent 8 }}
        - name: shm
          mountPath: /dev/shm
  volumes:
    {{- include "dpd.volumes" . | nindent 4 }}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ $root.Values.shm.size | toJson }}
    - name: config
      configMap:
        name: {{ include "dpd.fullname" $root }}-{{ .component }}
    {{- include "dpd.plugin.volume" (dict "root" $root "package" "dpd-vllm" "suffix" "engine-plugin") | nindent 4 }}
{{- end -}}
