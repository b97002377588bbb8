{{/* The part of dpd.validate that knows what engines run on. */}}

{{/* Devices of one set of resources: requests must equal limits. */}}
{{- define "dpd.validate.devices" -}}
{{- $resources := .values.resources | default dict -}}
{{- $requests := $resources.requests | default dict -}}
{{- range $name, $limit := $resources.limits -}}
{{- if and (include "dpd.isDevice" $name) (hasKey $requests $name) (ne (toString $limit) (get $requests $name | toString)) -}}
{{- printf "\n- %sresources: %s is %v in requests and %v in limits, but must be equal; give it in limits only" $.at $name (get $requests $name) $limit -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Why the instance types do not say how many of a device there are. */}}
{{- define "dpd.validate.instance" -}}
{{- include "dpd.facts" .root -}}
{{- $catalogue := .root.facts.instances -}}
{{- $types := .root.Values.instanceTypes -}}
{{- $limit := printf "engines.resources.limits.\"%s\"" .device -}}
{{- $missing := list -}}
{{- range .missing }}{{ $missing = append $missing (printf "engines.resources.limits.\"%s\"" .) }}{{ end -}}
{{- $unknown := list -}}
{{- $counts := list -}}
{{- range $types -}}
{{- $type := get $catalogue (trimPrefix "ml." .) -}}
{{- if not $type }}{{ $unknown = append $unknown . }}{{ else }}{{ $counts = append $counts (get $type $.count) }}{{ end -}}
{{- end -}}
{{- if $unknown -}}
{{- printf "\n- instanceTypes: %s is not in files/instances.yaml, so what a node has is not known; set %s by hand, with engines.resources.requests (cpu, memory) and engines.shm.size, or choose of %s" (join ", " $unknown) (join " and " $missing) (keys $catalogue | sortAlpha | join ", ") -}}
{{- else if has nil $counts -}}
{{- printf "\n- instanceTypes: no one number of %s is known for %s; set %s" .device (join ", " $types) $limit -}}
{{- else -}}
{{- printf "\n- instanceTypes: %s have different numbers of %s (%s); set %s to one that each has, or choose types with equal numbers" (join ", " $types) .device (join ", " $counts) $limit -}}
{{- end -}}
{{- end -}}

{{/* Devices of an engine: known, on the instance, enough for the transfer. */}}
{{- define "dpd.validate.resources" -}}
{{- $values := .root.Values -}}
{{- $types := $values.instanceTypes -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" "resources") .) -}}
{{- $instance := include "dpd.instance" . | fromJson -}}
{{- $given := (include "dpd.resources.given" . | fromJson).limits -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $devices := dict "nvidia.com/gpu" "gpus" -}}
{{- if eq $values.kvTransfer.backend "LIBFABRIC" }}{{ $_ := set $devices "vpc.amazonaws.com/efa" "efa" }}{{ end -}}
{{- include "dpd.facts" .root -}}
{{- $without := list -}}
{{- range $types }}{{ if eq (toString (get $.root.facts.instances (trimPrefix "ml." .) | default dict).efa) "0" }}{{ $without = append $without . }}{{ end }}{{ end -}}
{{- if $without }}{{ $_ := unset $devices "vpc.amazonaws.com/efa" }}{{ end -}}
{{- $unknown := list -}}
{{- range $name, $count := $devices }}{{ if and $types (not (or (hasKey $instance $count) (hasKey $given $name))) }}{{ $unknown = append $unknown $name }}{{ end }}{{ end -}}
{{- range $name, $count := $devices -}}
{{- if and (not (hasKey $instance $count)) (has $name $unknown) -}}
{{- include "dpd.validate.instance" (dict "root" $.root "device" $name "count" $count "missing" $unknown) -}}
{{- end -}}
{{- end -}}
{{- $gpus := get $resources.limits "nvidia.com/gpu" | int64 -}}
{{- if not (or $gpus $resources.claims $unknown (ne $values.kvTransfer.bufferDevice "cuda")) -}}
{{- printf "\n- kvTransfer.bufferDevice: cuda, but a %s pod asks for no nvidia.com/gpu; set instanceTypes or engines.resources.limits, or bufferDevice to cpu" .component -}}
{{- end -}}
{{- if and $without (eq $values.kvTransfer.backend "LIBFABRIC") -}}
{{- printf "\n- kvTransfer.backend: LIBFABRIC moves KV over EFA, which %s does not have; set it to UCX, or choose other instanceTypes" (join ", " $without) -}}
{{- else if not (or (get $resources.limits "vpc.amazonaws.com/efa") $resources.claims (has "vpc.amazonaws.com/efa" $unknown) (ne $values.kvTransfer.backend "LIBFABRIC")) -}}
{{- printf "\n- kvTransfer.backend: LIBFABRIC moves KV over EFA, but a %s pod asks for no vpc.amazonaws.com/efa; set instanceTypes or engines.resources.limits, or backend to UCX" .component -}}
{{- end -}}
{{- range $name, $amount := $resources.limits -}}
{{- $plain := merge (dict) $resources.requests $resources.limits -}}
{{- if and (hasPrefix "hugepages-" $name) (not (or $plain.cpu $plain.memory)) -}}
{{- printf "\n- %sresources: %s is %v, but Kubernetes gives huge pages only to pods that ask for cpu or memory too; add one of them, or set it to 0" $at $name $amount -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How the ranks of an engine fall on GPUs and nodes. */}}
{{- define "dpd.validate.nodes" -}}
{{- $model := .root.Values.model -}}
{{- $ranks := include "dpd.ranks" .root | int64 -}}
{{- $gpus := include "dpd.gpus" . | int64 -}}
{{- $all := get (include "dpd.instance" . | fromJson) "gpus" | int64 -}}
{{- $shape := include "dpd.model.shape" .root | fromJson -}}
{{- $sizes := printf "%v" $model.tensorParallelSize -}}
{{- $key := "model.tensorParallelSize" -}}
{{- if gt (int64 $model.pipelineParallelSize) 1 }}{{ $sizes = printf "%v with model.pipelineParallelSize %v" $model.tensorParallelSize $model.pipelineParallelSize }}{{ end -}}
{{- $wanted := gt $all 0 | ternary (min $ranks $all) $ranks -}}
{{- if or (gt $gpus $ranks) (and $gpus $all (lt $gpus $wanted)) -}}
{{- printf "\n- %s: %s needs %d GPUs for one engine, but a %s pod asks for %d nvidia.com/gpu; ask for %d in resources.limits, or make this %d" $key $sizes $ranks .component $gpus $wanted $gpus -}}
{{- else if and $gpus (gt $ranks $gpus) (mod $ranks $gpus) -}}
{{- printf "\n- %s: %s needs %d GPUs for one engine, which does not divide into pods of %d; choose a multiple of %d" $key $sizes $ranks $gpus $gpus -}}
{{- else if and $all $gpus (lt $gpus $all) (mod $all $gpus) (eq $gpus $ranks) -}}
{{- printf "\n- %s: %s does not divide the %d GPUs of %s, so that some would stand idle; choose 1, 2, 4 or 8, or other instanceTypes" $key $sizes $all (join ", " .root.Values.instanceTypes) -}}
{{- else if mod (int64 $shape.heads) (int64 $model.tensorParallelSize) -}}
{{- printf "\n- %s: %v does not divide the %v attention heads of %s, which vLLM shares out evenly over the GPUs; choose one that does" $key $model.tensorParallelSize $shape.heads $model.name -}}
{{- else if and $shape.kvHeads (not $shape.mla) (mod (int64 $shape.kvHeads) (int64 $model.tensorParallelSize)) (mod (int64 $model.tensorParallelSize) (int64 $shape.kvHeads)) -}}
{{- printf "\n- %s: %v neither divides the %v KV heads of %s nor is a multiple of them, so that vLLM cannot give each GPU as many; choose one that does or is" $key $model.tensorParallelSize $shape.kvHeads $model.name -}}
{{- end -}}
{{- if and (gt (int64 $model.pipelineParallelSize) 1) $shape.mla -}}
{{- printf "\n- model.pipelineParallelSize: %d, but of a model with MLA (model.shape.mla) the first rank alone sends KV, and layers of later stages would be missing; set it to 1" (int64 $model.pipelineParallelSize) -}}
{{- end -}}
{{- $nodes := include "dpd.nodes" . -}}
{{- if ne $nodes "1" -}}
{{- with include "dpd.args.value" (dict "role" . "flag" "--api-server-count") -}}
{{- printf "\n- engines.args: --api-server-count is %s on %s, but of an engine over %s nodes vLLM takes it on the first only, so that the others would not start; remove it" . $.component $nodes -}}
{{- end -}}
{{- $executor := include "dpd.args.value" (dict "role" . "flag" "--distributed-executor-backend") -}}
{{- if and $executor (ne $executor "mp") -}}
{{- printf "\n- engines.args: --distributed-executor-backend is %s on %s, but an engine over %s nodes starts with mp only; remove it" $executor .component $nodes -}}
{{- end -}}
{{- if include "dpd.strategy" . | contains "Recreate" -}}
{{- printf "\n- %sstrategy.type: Recreate, but an engine over %s nodes is replaced by RollingUpdate; remove it" .at $nodes -}}
{{- end -}}
{{- end -}}
{{- end -}}
