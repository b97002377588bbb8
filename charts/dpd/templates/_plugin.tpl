{{/* Files of a plugin as JSON {ConfigMap key: content}; a key is the file's path with dots for slashes. */}}
{{- define "dpd.plugin.data" -}}
{{- $prefix := printf "files/plugins/%s/" .package -}}
{{- $data := dict -}}
{{- range $path, $content := .root.Files.Glob (printf "%s**" $prefix) -}}
{{- $_ := set $data (trimPrefix $prefix $path | replace "/" ".") (toString $content) -}}
{{- end -}}
{{- toJson $data -}}
{{- end -}}

{{/* The volume that puts those files back to their paths. */}}
{{- define "dpd.plugin.volume" -}}
{{- $prefix := printf "files/plugins/%s/" .package -}}
- name: plugin
  configMap:
    name: {{ include "dpd.fullname" .root }}-{{ .suffix }}
    items:
      {{- range $path, $_ := .root.Files.Glob (printf "%s**" $prefix) }}
      - key: {{ trimPrefix $prefix $path | replace "/" "." }}
        path: {{ trimPrefix $prefix $path }}
      {{- end }}
{{- end -}}
