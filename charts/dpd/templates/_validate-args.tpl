{{/* The part of dpd.validate that knows vLLM's arguments. */}}

{{- define "dpd.validate.args" -}}
{{- include "dpd.facts" .root -}}
{{- $facts := .root.facts.flags -}}
{{- $parsed := include "dpd.args.groups" (dict "root" .root "args" .values.args) | fromJson -}}
{{- $key := printf "%sargs" .at -}}
{{- range $parsed.stray }}{{ printf "\n- %s: %q belongs to no flag; write --flag=value (the model is model.name)" $key . }}{{ end -}}
{{- $before := list -}}
{{- range $group := $parsed.groups -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.secret) -}}
{{- printf "\n- %s: %s is a secret in plain text, which everybody reads who may read the values; %s" $key . (get $facts.secret .) -}}
{{- else -}}
{{- $item := first $group.items -}}
{{- if and (regexMatch "^-[nqr][^=\\s]" $item) (eq $group.name (regexFind "^[^=\\s]+" $item)) -}}
{{- printf "\n- %s: %q hides its value; write %q" $key $item (printf "%s=%s" (get $facts.aliases (substr 0 2 $item)) (substr 2 -1 $item)) -}}
{{- end -}}
{{- if regexMatch "^[^=]*\\s" $item -}}
{{- printf "\n- %s: %q has a space in its flag; write %s" $key $item (regexReplaceAll "\\s+" $item "=" | quote) -}}
{{- end -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.owned) -}}
{{- printf "\n- %s: %q is not for setting, since the chart owns %s; %s" $key $item . (get $facts.owned .) -}}
{{- end -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.refused) -}}
{{- printf "\n- %s: %q is not for setting; %s" $key $item (get $facts.refused .) -}}
{{- end -}}
{{- if not (or (eq $.component "engines") (hasKey $facts.owned $group.name)) -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.sharedOnly) -}}
{{- printf "\n- %s: %q is not for one role, since both must write a prompt alike; set it in engines.args" $key $item -}}
{{- end -}}
{{- end -}}
{{- with get $facts.gpuRoom (include "dpd.args.owned" (dict "name" $group.name "flags" $facts.gpuRoom)) -}}
{{- if not (regexMatch (printf "%s|\\$\\(" .pattern) (include "dpd.args.given" $group)) -}}
{{- printf "\n- %s: %q is not what vLLM takes; write %s" $key (join " " $group.items) .words -}}
{{- end -}}
{{- end -}}
{{- if has $.component (list "engines" "decode") -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.ownedByDecode) -}}
{{- printf "\n- %s: %q is not for setting on the decoder; %s" $key $item (get $facts.ownedByDecode .) -}}
{{- end -}}
{{- end -}}
{{- range $before -}}
{{- if include "dpd.args.same" (dict "a" . "b" $group) }}{{ printf "\n- %s: %s is given twice, as %q and as %q; keep one" $key $group.flag (first .items) $item }}{{ end -}}
{{- end -}}
{{- $before = append $before $group -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Flags that must be equal on both roles. */}}
{{- define "dpd.validate.agreement" -}}
{{- include "dpd.facts" . -}}
{{- $prefill := include "dpd.args.shaping" (dict "root" . "component" "prefill" "flags" .facts.flags.agree) | fromJson -}}
{{- $decode := include "dpd.args.shaping" (dict "root" . "component" "decode" "flags" .facts.flags.agree) | fromJson -}}
{{- range $flag, $value := $prefill -}}
{{- if ne $value (get $decode $flag) -}}
{{- printf "\n- engines.args: %s is %q on prefill and %q on decode, so one could not read the other's KV; set it once, in engines.args" $flag $value (get $decode $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
