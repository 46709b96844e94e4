{{- define "backfill.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Short enough for what is appended to it. */}}
{{- define "backfill.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $made := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $made .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "backfill.serviceAccount" -}}
{{- $made := ternary (include "backfill.fullname" .) "default" .Values.serviceAccount.create }}
{{- default $made .Values.serviceAccount.name }}
{{- end }}

{{- define "backfill.selector" -}}
app.kubernetes.io/name: {{ include "backfill.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- /* Labels of an object: (list $ component). */}}
{{- define "backfill.labels" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "backfill.name" $ | quote }}
app.kubernetes.io/instance: {{ $.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The reference of an image: (list $ image). */}}
{{- define "backfill.image" -}}
{{- $ := index . 0 -}}
{{- with index . 1 -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* The names of the namespaces that are looked after, as JSON; none: all. */}}
{{- define "backfill.watched" -}}
{{- $names := list }}
{{- if eq .Values.scope "Namespaces" }}
{{- range .Values.namespaces }}{{ $names = append $names .name }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- /* What the operator may use; on the node's disk, /tmp and its log. */}}
{{- define "backfill.limits" -}}
{{- mergeOverwrite (dict "memory" "768Mi" "ephemeral-storage" "1Gi") (default dict .Values.resources.limits) | toYaml }}
{{- end }}

{{- /* What any pod of this chart has to be to run where Pod Security is restricted. */}}
{{- define "backfill.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.podSecurityContext }}
{{ toYaml . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "backfill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The subject of the operator's bindings. */}}
{{- define "backfill.subject" -}}
{kind: ServiceAccount, name: {{ include "backfill.serviceAccount" . | quote }}, namespace: {{ .Release.Namespace | quote }}}
{{- end }}

{{- /* What would install and not work is refused. */}}
{{- define "backfill.check" -}}
{{- $name := include "backfill.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "%s is not a valid Service name: set fullnameOverride to a name of lower-case letters, digits and '-' that begins with a letter" $name) }}
{{- end }}
{{- if and (eq .Values.scope "Namespaces") (not .Values.namespaces) }}
{{- fail "scope is Namespaces, but namespaces is empty: list at least one, for example with --set namespaces[0].name=streaming" }}
{{- end }}
{{- if and (ne .Values.image.repository "localhost/backfill-operator") (eq .Values.jobs.image.repository "localhost/backfill-jobs") }}
{{- fail "jobs.image.repository is not set: build the image of jobs (operator/Dockerfile, target jobs), push it beside the operator's, and name it there" }}
{{- end }}
{{- $names := list }}
{{- range .Values.namespaces }}
{{- if has .name $names }}{{ fail (printf "namespaces lists %s twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
