{{/* The part of dpd.validate that knows engines: their arguments and their devices. */}}

{{- define "dpd.validate.args" -}}
{{- $facts := .root.Files.Get "files/flags.yaml" | fromYaml -}}
{{- $parsed := include "dpd.args.groups" (dict "root" .root "args" .values.args) | fromJson -}}
{{- $key := printf "%sargs" .at -}}
{{- range $parsed.stray }}{{ printf "\n- %s: %q belongs to no flag; write --flag=value (the model is model.name)" $key . }}{{ end -}}
{{- $before := list -}}
{{- range $group := $parsed.groups -}}
{{- $item := first $group.items -}}
{{- if regexMatch "^[^=]*\\s" $item -}}
{{- printf "\n- %s: %q has a space in its flag; write %s" $key $item (regexReplaceAll "\\s+" $item "=" | quote) -}}
{{- end -}}
{{- with include "dpd.args.owned" (dict "name" $group.name "flags" $facts.owned) -}}
{{- printf "\n- %s: %q is not for setting, since the chart owns %s; %s" $key $item . (get $facts.owned .) -}}
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

{{/* Flags that must be equal on both roles. */}}
{{- define "dpd.validate.agreement" -}}
{{- $facts := .Files.Get "files/flags.yaml" | fromYaml -}}
{{- $given := dict -}}
{{- range $component := list "prefill" "decode" -}}
{{- range (include "dpd.args.merged" (dict "root" $ "component" $component) | fromJson).groups -}}
{{- $_ := set $given (printf "%s %s" $component .flag) (join " " .items | regexFind "[= ].*" | trimAll "= ") -}}
{{- end -}}
{{- end -}}
{{- range $flag := $facts.agree -}}
{{- $prefill := get $given (printf "prefill %s" $flag) -}}
{{- $decode := get $given (printf "decode %s" $flag) -}}
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
{{- printf "\n- instanceTypes: no one number of %s is known for %s; set %sresources.limits.\"%s\"" $name (join ", " $types) $.at $name -}}
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
