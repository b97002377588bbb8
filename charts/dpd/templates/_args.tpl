{{/*
A vLLM argument's flag in one spelling: "-tp", "--tensor_parallel_size=8" and "--tensor-parallel-size" are the same,
and so are "--enable-x" and "--no-enable-x". What follows a dot names a part of a JSON flag and stays as it is.
*/}}
{{- define "dpd.args.flag" -}}
{{- $parts := regexFind "^[^=\\s]+" .item | splitList "." -}}
{{- $name := first $parts | replace "_" "-" | replace "--no-" "--" -}}
{{- if hasPrefix "-O" $name }}{{ $name = "--optimization-level" }}{{ end -}}
{{- $name = get .facts.aliases $name | default $name -}}
{{- prepend (rest $parts) $name | join "." -}}
{{- end -}}

{{/* A list of arguments as JSON {"groups": [{flag, name, items}], "stray": […]}: a flag with the values that follow it. */}}
{{- define "dpd.args.groups" -}}
{{- include "dpd.facts" .root -}}
{{- $facts := .root.facts.flags -}}
{{- $groups := list -}}
{{- $stray := list -}}
{{- range $item := .args -}}
{{- if regexMatch "^--?[A-Za-z]" $item -}}
{{- $flag := include "dpd.args.flag" (dict "item" $item "facts" $facts) -}}
{{- $groups = append $groups (dict "flag" $flag "name" (splitList "." $flag | first) "items" (list $item)) -}}
{{- else if or (eq $item "--") (not $groups) -}}
{{- $stray = append $stray $item -}}
{{- else -}}
{{- $_ := set (last $groups) "items" (append (last $groups).items $item) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "groups" $groups "stray" $stray) -}}
{{- end -}}

{{/* "yes" when two groups set the same thing: one flag, or a whole JSON flag and a part of it. */}}
{{- define "dpd.args.same" -}}
{{- if or (eq .a.flag .b.flag) (and (eq .a.name .b.name) (or (eq .a.flag .a.name) (eq .b.flag .b.name))) }}yes{{ end -}}
{{- end -}}

{{/* Which of .flags a name means; vLLM also takes a name that is cut short. */}}
{{- define "dpd.args.owned" -}}
{{- $found := "" -}}
{{- range $flag, $_ := .flags }}{{ if and (hasPrefix $.name $flag) (not $found) }}{{ $found = $flag }}{{ end }}{{ end -}}
{{- if hasKey .flags .name }}{{ .name }}{{ else }}{{ $found }}{{ end -}}
{{- end -}}

{{/* The user's arguments of a role as JSON {"groups": […]}: the shared ones that the role does not set, then the role's. */}}
{{- define "dpd.args.merged" -}}
{{- include "dpd.kept" (merge (dict "of" "dpd.args.merge") .) -}}
{{- end -}}

{{- define "dpd.args.merge" -}}
{{- $shared := include "dpd.args.groups" (dict "root" .root "args" .root.Values.engines.args) | fromJson -}}
{{- $own := include "dpd.args.groups" (dict "root" .root "args" (index .root.Values .component).args) | fromJson -}}
{{- $groups := list -}}
{{- range $group := $shared.groups -}}
{{- $replaced := "" -}}
{{- range $own.groups }}{{ $replaced = include "dpd.args.same" (dict "a" . "b" $group) | default $replaced }}{{ end -}}
{{- if not $replaced }}{{ $groups = append $groups $group }}{{ end -}}
{{- end -}}
{{- toJson (dict "groups" (concat $groups $own.groups)) -}}
{{- end -}}

{{/* Which of .flags, a part of files/flags.yaml, a role's arguments hold, as JSON {"flags": […]}. */}}
{{- define "dpd.args.present" -}}
{{- include "dpd.facts" .root -}}
{{- $flags := index .root.facts.flags .flags -}}
{{- $found := list -}}
{{- range (include "dpd.args.merged" . | fromJson).groups -}}
{{- with include "dpd.args.owned" (dict "name" .name "flags" $flags) }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- toJson (dict "flags" (uniq $found)) -}}
{{- end -}}

{{/* Everything after "vllm serve" for a role, as JSON {"items": […]}; .part is "worker" for the pods of an engine that follow its first. */}}
{{- define "dpd.args" -}}
{{- $values := .root.Values -}}
{{- $items := list
  (include "dpd.model.path" .root)
  (printf "--served-model-name=%s" (include "dpd.servedName" .root))
  (printf "--host=%s" $values.bindAddress)
  (printf "--port=%d" (int64 8000))
  (printf "--tensor-parallel-size=%d" (int64 $values.model.tensorParallelSize))
  (printf "--max-model-len=%d" (int64 $values.model.maxLen))
  (printf "--dtype=%s" $values.model.dtype)
  (printf "--kv-transfer-config=%s" (include "dpd.kvTransferConfig" .))
  (printf "--shutdown-timeout=%d" (int64 (include "dpd.values" . | fromJson).drainSeconds))
-}}
{{- with $values.model.pipelineParallelSize | int64 }}{{ if gt . 1 }}{{ $items = append $items (printf "--pipeline-parallel-size=%d" .) }}{{ end }}{{ end -}}
{{- with include "dpd.nodes" . | int64 -}}
{{- if gt . 1 -}}
{{- $rank := ternary "$(LWS_WORKER_INDEX)" "0" (eq ($.part | default "") "worker") -}}
{{- $items = concat $items (list (printf "--nnodes=%d" .) (printf "--node-rank=%s" $rank) "--master-addr=$(LWS_LEADER_ADDRESS)") -}}
{{- if eq ($.part | default "") "worker" }}{{ $items = append $items "--headless" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $values.model.tokenizer }}{{ $items = append $items (printf "--tokenizer=%s" .) }}{{ end -}}
{{- with $values.model.revision }}{{ $items = concat $items (list (printf "--revision=%s" .) (printf "--tokenizer-revision=%s" .)) }}{{ end -}}
{{- if eq .component "decode" }}{{ $items = append $items "--no-enable-prefix-caching" }}{{ end -}}
{{- if not (include "dpd.args.present" (merge (dict "flags" "gpuRoom") .) | fromJson).flags -}}
{{- with include "dpd.gpu.share" . }}{{ $items = append $items (printf "--gpu-memory-utilization=%s" .) }}{{ end -}}
{{- end -}}
{{- range (include "dpd.args.merged" . | fromJson).groups }}{{ $items = concat $items .items }}{{ end -}}
{{- toJson (dict "items" $items) -}}
{{- end -}}

{{/* The value of --kv-transfer-config. The extra settings are the pair that leaks no page of the receiver buffer. */}}
{{- define "dpd.kvTransferConfig" -}}
{{- $extra := dict "discard_partial_chunks" false "skip_last_n_tokens" 0 -}}
{{- $config := dict "kv_connector" "LMCacheConnectorV1" "kv_connector_extra_config" $extra -}}
{{- if eq .component "decode" -}}
{{- $config = merge $config (dict "kv_role" "kv_consumer" "kv_load_failure_policy" "recompute") -}}
{{- else -}}
{{- $config = merge $config (dict "kv_role" "kv_producer") -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The value of a group, as text: what stands behind the flag. */}}
{{- define "dpd.args.given" -}}
{{- join " " .items | regexFind "[= ].*" | trimAll "= " -}}
{{- end -}}

{{/* The value that a role's arguments give a flag, as text; empty when they do not. */}}
{{- define "dpd.args.value" -}}
{{- $found := "" -}}
{{- range (include "dpd.args.merged" .role | fromJson).groups -}}
{{- if include "dpd.args.owned" (dict "name" .name "flags" (dict $.flag "")) }}{{ $found = include "dpd.args.given" . }}{{ end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/*
What a role's arguments say of .flags, a map to the values that are the same as not giving them, as JSON {flag: value}: that value when
they say nothing else, or only what shapes no KV. Of a JSON flag it is the whole and then its parts.
*/}}
{{- define "dpd.args.shaping" -}}
{{- include "dpd.facts" .root -}}
{{- $out := deepCopy .flags -}}
{{- range (include "dpd.args.merged" . | fromJson).groups -}}
{{- $flag := include "dpd.args.owned" (dict "name" .name "flags" $.flags) -}}
{{- $value := include "dpd.args.given" . -}}
{{- if and $flag (ne .flag .name) }}{{ $value = printf "%s %s=%s" (get $out $flag) (trimPrefix .name .flag) $value | trim }}{{ end -}}
{{- if $flag }}{{ $_ := set $out $flag $value }}{{ end -}}
{{- end -}}
{{- range $flag, $pattern := .root.facts.flags.agreeAnyway -}}
{{- if and (hasKey $out $flag) (regexMatch $pattern (get $out $flag)) }}{{ $_ := set $out $flag (get $.flags $flag) }}{{ end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}
