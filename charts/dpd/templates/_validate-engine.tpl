{{/* The part of dpd.validate that knows engines: their arguments and their devices. */}}

{{- define "dpd.validate.args" -}}
{{- $facts := .root.Files.Get "files/flags.yaml" | fromYaml -}}
{{- $parsed := include "dpd.args.groups" (dict "root" .root "args" .values.args) | fromJson -}}
{{- $key := printf "%sargs" .at -}}
{{- range $parsed.stray }}{{ printf "\n- %s: %q belongs to no flag; write --flag=value (the model is model.name)" $key . }}{{ end -}}
{{- $before := list -}}
{{- range $group := $parsed.groups -}}
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
{{- if $.component -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.sharedOnly) -}}
{{- printf "\n- %s: %q is not for one role, since both must write a prompt alike; %s" $key $item (get $facts.sharedOnly .) -}}
{{- end -}}
{{- end -}}
{{- if has $.component (list "" "decode") -}}
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

{{/* Flags that must be equal on both roles; of a JSON flag, the whole and then its parts. */}}
{{- define "dpd.validate.agreement" -}}
{{- $facts := .Files.Get "files/flags.yaml" | fromYaml -}}
{{- $given := dict "prefill" (deepCopy $facts.agree) "decode" (deepCopy $facts.agree) -}}
{{- range $component, $values := $given -}}
{{- range (include "dpd.args.merged" (dict "root" $ "component" $component) | fromJson).groups -}}
{{- $flag := include "dpd.args.owned" (dict "name" .name "flags" $facts.agree) -}}
{{- $value := join " " .items | regexFind "[= ].*" | trimAll "= " -}}
{{- if and $flag (ne .flag .name) }}{{ $value = printf "%s %s=%s" (get $values $flag) (trimPrefix .name .flag) $value | trim }}{{ end -}}
{{- if $flag }}{{ $_ := set $values $flag $value }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $flag, $_ := $facts.agree -}}
{{- $prefill := get $given.prefill $flag -}}
{{- $decode := get $given.decode $flag -}}
{{- if ne $prefill $decode -}}
{{- printf "\n- args: %s is %q on prefill and %q on decode, so one could not read the other's KV; set it once, in args" $flag $prefill $decode -}}
{{- end -}}
{{- end -}}
{{- end -}}

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
{{- $catalogue := .root.Files.Get "files/instances.yaml" | fromYaml -}}
{{- $types := .root.Values.instanceTypes -}}
{{- $limit := printf "%sresources.limits.\"%s\"" .at .device -}}
{{- $unknown := list -}}
{{- $counts := list -}}
{{- range $types -}}
{{- $type := get $catalogue (trimPrefix "ml." .) -}}
{{- if not $type }}{{ $unknown = append $unknown . }}{{ else }}{{ $counts = append $counts (get $type $.count) }}{{ end -}}
{{- end -}}
{{- if $unknown -}}
{{- printf "\n- instanceTypes: %s is not in files/instances.yaml, so its number of %s is not known; set %s by hand, or choose of %s" (join ", " $unknown) .device $limit (keys $catalogue | sortAlpha | join ", ") -}}
{{- else if has nil $counts -}}
{{- printf "\n- instanceTypes: no one number of %s is known for %s; set %s" .device (join ", " $types) $limit -}}
{{- else -}}
{{- printf "\n- instanceTypes: %s have different numbers of %s (%s); set %s to one that each has, or choose types with equal numbers" (join ", " $types) .device (join ", " $counts) $limit -}}
{{- end -}}
{{- end -}}

{{/* Devices of an engine: known, on the instance, enough for the model and for the transfer. */}}
{{- define "dpd.validate.resources" -}}
{{- $values := .root.Values -}}
{{- $types := $values.instanceTypes -}}
{{- $instance := include "dpd.instance" .root | fromJson -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $devices := dict "nvidia.com/gpu" "gpus" -}}
{{- if eq $values.kvTransfer.backend "LIBFABRIC" }}{{ $_ := set $devices "vpc.amazonaws.com/efa" "efa" }}{{ end -}}
{{- $unknown := list -}}
{{- range $name, $count := $devices -}}
{{- $asked := get $resources.limits $name | int64 -}}
{{- if hasKey $instance $count -}}
{{- if gt $asked (get $instance $count | int64) -}}
{{- printf "\n- %sresources: %d %s is more than the %v of %s; ask for less or choose other instanceTypes" $.at $asked $name (get $instance $count) (join ", " $types) -}}
{{- end -}}
{{- else if and $types (not (include "dpd.resources.given" (dict "scope" $ "name" $name))) -}}
{{- $unknown = append $unknown $name -}}
{{- include "dpd.validate.instance" (dict "root" $.root "at" $.at "device" $name "count" $count) -}}
{{- end -}}
{{- end -}}
{{- $gpus := get $resources.limits "nvidia.com/gpu" | int64 -}}
{{- $ranks := int64 $values.model.tensorParallelSize -}}
{{- if and $gpus (ne $gpus $ranks) -}}
{{- printf "\n- model.tensorParallelSize: %d GPUs for one engine, but a %s pod asks for %d nvidia.com/gpu; make the two equal, here or in resources.limits" $ranks .component $gpus -}}
{{- end -}}
{{- if not (or $gpus $resources.claims $unknown (ne $values.kvTransfer.bufferDevice "cuda")) -}}
{{- printf "\n- kvTransfer.bufferDevice: cuda, but a %s pod asks for no nvidia.com/gpu; set instanceTypes or resources.limits, or bufferDevice to cpu" .component -}}
{{- end -}}
{{- if not (or (get $resources.limits "vpc.amazonaws.com/efa") $resources.claims (has "vpc.amazonaws.com/efa" $unknown) (ne $values.kvTransfer.backend "LIBFABRIC")) -}}
{{- printf "\n- kvTransfer.backend: LIBFABRIC moves KV over EFA, but a %s pod asks for no vpc.amazonaws.com/efa; set instanceTypes or resources.limits, or backend to UCX" .component -}}
{{- end -}}
{{- range $name, $amount := $resources.limits -}}
{{- $plain := merge (dict) $resources.requests $resources.limits -}}
{{- if and (hasPrefix "hugepages-" $name) (not (or $plain.cpu $plain.memory)) -}}
{{- printf "\n- %sresources: %s is %v, but Kubernetes gives huge pages only to pods that ask for cpu or memory too; add one of them" $.at $name $amount -}}
{{- end -}}
{{- end -}}
{{- end -}}
