{{/* The part of dpd.validate about where things are: nodes, the model, caches, and the way in. */}}

{{- define "dpd.validate.placement" -}}
{{- $placement := .Values.placement -}}
{{- if and $placement.sameNode $placement.separateNodes -}}
{{- "\n- placement.sameNode: true, but placement.separateNodes is too; set that to false" -}}
{{- end -}}
{{- if and $placement.sameNode (eq .Values.kvTransfer.backend "LIBFABRIC") -}}
{{- "\n- placement.sameNode: true, but kvTransfer.backend is LIBFABRIC, and EFA is not used within a node; set it to UCX" -}}
{{- end -}}
{{- include "dpd.facts" . -}}
{{- if and $placement.zone (not (regexMatch .facts.names.zone $placement.zone)) -}}
{{- printf "\n- placement.zone: %q is not the name of an availability zone, which nodes have as a label; write a name such as us-west-2a, not an id (usw2-az1) or a region (us-west-2)" $placement.zone -}}
{{- end -}}
{{- $layer := int64 $placement.networkNodeLayer -}}
{{- range $type := .Values.instanceTypes -}}
{{- with get $.facts.instances (trimPrefix "ml." $type) -}}
{{- if gt $layer (int64 .networkLayers) -}}
{{- $most := gt (int64 .networkLayers) 0 | ternary (printf "%v or less" .networkLayers) "0" -}}
{{- printf "\n- placement.networkNodeLayer: %d, but EC2 tells %v layers of the network of %s, so its nodes have no label for that one; set it to %s, or choose other instanceTypes" $layer .networkLayers $type $most -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Each source needs its own keys; keys of another source would be forgotten without a word. */}}
{{- define "dpd.validate.source" -}}
{{- $source := .Values.model.source -}}
{{- $optional := list "cacheHostPath" "region" "copyHostPath" -}}
{{- $known := dict "huggingFace" (list "cacheHostPath") "s3" (list "bucket" "region" "copyHostPath") "fsx" (list "fileSystemId" "dnsName" "mountName") "pvc" (list "claimName") "hostPath" (list "path") "image" (list "reference") -}}
{{- range $type, $keys := $known -}}
{{- range $key := $keys -}}
{{- $value := get (get $source $type) $key -}}
{{- if and (eq $type $source.type) (not (or $value (has $key $optional))) -}}
{{- printf "\n- model.source.%s.%s: empty, but model.source.type is %s; set it" $type $key $type -}}
{{- else if and $value (ne $type $source.type) -}}
{{- printf "\n- model.source.%s.%s: %q is not used, since model.source.type is %s; set that to %s, or remove it" $type $key $value $source.type $type -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $source.type "s3") (eq $source.s3.access "mount") $source.s3.copyHostPath -}}
{{- printf "\n- model.source.s3.copyHostPath: %q is not used, since model.source.s3.access is mount; set that to copy, or remove it" $source.s3.copyHostPath -}}
{{- end -}}
{{- if and (eq $source.type "huggingFace") $source.path -}}
{{- printf "\n- model.source.path: %q is a folder of a bucket, file system, claim or image, but model.source.type is huggingFace; remove it" $source.path -}}
{{- end -}}
{{- if and (ne $source.type "huggingFace") .Values.model.revision -}}
{{- printf "\n- model.revision: %q is of Hugging Face, but model.source.type is %s; remove it" .Values.model.revision $source.type -}}
{{- end -}}
{{- $tokenizer := .Values.model.tokenizer -}}
{{- $online := eq $source.type "huggingFace" -}}
{{- range list .Values.engines .Values.prefill .Values.decode .Values.router }}{{ range .env }}{{ if eq .name "HF_HUB_OFFLINE" }}{{ $online = true }}{{ end }}{{ end }}{{ end -}}
{{- if not (or $online (empty $tokenizer) (hasPrefix "/" $tokenizer)) -}}
{{- printf "\n- model.tokenizer: %q is of Hugging Face, but model.source.type is %s, with which pods fetch nothing from there; set it to a folder in the containers, or leave it empty if the model's folder (%s) has the tokenizer" $tokenizer $source.type (include "dpd.model.path" .) -}}
{{- end -}}
{{- if and (eq $source.type "image") (semverCompare "<1.31.0-0" .Capabilities.KubeVersion.Version) -}}
{{- printf "\n- model.source.type: image volumes came with Kubernetes 1.31, this is %s; choose another source" .Capabilities.KubeVersion.Version -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.cache" -}}
{{- $l2 := .Values.cache.l2 -}}
{{- $secret := $l2.urlSecret.name -}}
{{- /* What stands before "@" is or has a password, unless this is a folder. */ -}}
{{- $shown := $l2.address | default "" -}}
{{- if not (hasPrefix "/" $shown) }}{{ $shown = regexReplaceAll "^(.*//)?.*@" $shown "${1}…@" }}{{ end -}}
{{- $volume := dict -}}
{{- if $l2.address }}{{ $volume = include "dpd.validate.mounted" . | fromJson }}{{ end -}}
{{- if and (ne $l2.type "none") (not .Values.cache.l1.enabled) -}}
{{- printf "\n- cache.l2.type: %s, but cache.l1.enabled is false, and LMCache reads and writes L2 through L1; set that to true" $l2.type -}}
{{- end -}}
{{- if and (eq $l2.type "none") (or $l2.address $secret) -}}
{{- printf "\n- cache.l2.type: none, but cache.l2 says where it is (%s); set type, or remove that" ($shown | default $secret) -}}
{{- else if and (ne $l2.type "none") (not (or $l2.address $secret)) -}}
{{- printf "\n- cache.l2.address: empty, but cache.l2.type is %s; set it, or cache.l2.urlSecret" $l2.type -}}
{{- else if and $l2.address $secret -}}
{{- printf "\n- cache.l2.address: %q, but cache.l2.urlSecret has the whole URL; keep one" $shown -}}
{{- else if and (eq $l2.type "file") $l2.address (not (hasPrefix "/" $l2.address)) -}}
{{- printf "\n- cache.l2.address: %q is no folder in the containers; write one that starts with / and mount it by prefill.volumes" $shown -}}
{{- else if and (eq $l2.type "file") $l2.address (not $volume) -}}
{{- printf "\n- cache.l2.address: %q lies below no mount of the prefillers, so each would keep its own, on a file system that is read-only; mount a shared one there by prefill.volumes and prefill.volumeMounts" $l2.address -}}
{{- else if and (eq $l2.type "file") $l2.address (hasKey $volume "emptyDir") -}}
{{- printf "\n- cache.l2.address: %q lies on an emptyDir (%s), which each prefiller has for itself; mount a volume there that they share, by prefill.volumes and prefill.volumeMounts" $l2.address $volume.name -}}
{{- else if and (has $l2.type (list "redis" "lmcache")) $l2.address (not (regexMatch "^[^/@]+:[0-9]+$" $l2.address)) -}}
{{- printf "\n- cache.l2.address: %q is not host:port; a URL with a password belongs into a Secret, see cache.l2.urlSecret" $shown -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.exposure" -}}
{{- $router := .Values.router -}}
{{- if regexMatch "^(127\\.|localhost$|\\[?::1\\]?$)" .Values.bindAddress -}}
{{- printf "\n- bindAddress: %q is reached from within a pod only, but clients, routers and probes are outside; set it to 0.0.0.0, :: or $(POD_IP)" .Values.bindAddress -}}
{{- end -}}
{{- if and $router.httpRoute.enabled (not $router.httpRoute.parentRefs) -}}
{{- "\n- router.httpRoute.parentRefs: empty, so no Gateway would take the route; name one" -}}
{{- end -}}
{{- if and $router.ingress.tlsSecretName (not $router.ingress.hosts) -}}
{{- printf "\n- router.ingress.tlsSecretName: %q, but router.ingress.hosts is empty; name the hosts of the certificate" $router.ingress.tlsSecretName -}}
{{- end -}}
{{- end -}}
