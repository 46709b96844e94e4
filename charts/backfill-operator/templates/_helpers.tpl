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

{{- define "backfill.image" -}}
{{- with .Values.image -}}
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

{{- /* The namespaces whose jobs may run in the operator, as JSON: of one team all, of several none, if nothing is said. */}}
{{- define "backfill.inOperatorFor" -}}
{{- $default := ternary (list) (list "*") (gt (len (default list .Values.namespaces)) 1) }}
{{- ternary $default .Values.jobs.inOperatorFor (kindIs "invalid" .Values.jobs.inOperatorFor) | toJson }}
{{- end }}

{{- /* Whether pods of a namespace may hand in the result of planning: (list $ entry). */}}
{{- define "backfill.planInPods" -}}
{{- $entry := index . 1 }}
{{- $trusted := include "backfill.inOperatorFor" (index . 0) | fromJsonArray }}
{{- if hasKey $entry "planInPods" }}{{ ternary "yes" "" $entry.planInPods }}
{{- else if and $entry.drivers (not (or (has "*" $trusted) (has $entry.name $trusted))) }}yes{{ end }}
{{- end }}

{{- /* Mebibytes in a quantity, rounded up. */}}
{{- define "backfill.mebibytes" -}}
{{- $number := regexFind "^[0-9.]+" . | float64 }}
{{- $unit := regexReplaceAll "^[0-9.]+" . "" }}
{{- $bytes := get (dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0) $unit }}
{{- divf (mulf $number $bytes) 1048576.0 | ceil | int64 }}
{{- end }}

{{- /* What the operator itself may use; on the node's disk, /tmp and its log. */}}
{{- define "backfill.limits" -}}
{{- mergeOverwrite (dict "memory" "768Mi" "ephemeral-storage" "1Gi") (default dict .Values.resources.limits) | toYaml }}
{{- end }}

{{- /* What its jobs may use: 256 MiB, and for each its memory, 256 MiB that the kernel lets it exceed that by, and a core. */}}
{{- define "backfill.jobLimits" -}}
{{- $jobs := .Values.jobs }}
{{- $memory := add 256 (mul $jobs.concurrent (add 256 (include "backfill.mebibytes" $jobs.memory | int64))) }}
{{- $made := dict "memory" (printf "%dMi" $memory) "cpu" (toString $jobs.concurrent) "ephemeral-storage" "2Gi" }}
{{- mergeOverwrite $made (default dict $jobs.resources.limits) | toYaml }}
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
{{- $names := list }}
{{- range .Values.namespaces }}
{{- if has .name $names }}{{ fail (printf "namespaces lists %s twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- if and .planInPods (not .drivers) }}
{{- fail (printf "namespaces: planInPods of %s requires drivers: job pods run with the drivers' service accounts" .name) }}
{{- end }}
{{- end }}
{{- with .Values.securityContext.runAsUser }}
{{- $jobs := $.Values.podSecurityContext.runAsUser }}
{{- if or (kindIs "invalid" $jobs) (kindIs "invalid" $.Values.podSecurityContext.fsGroup) }}
{{- fail "securityContext.runAsUser requires podSecurityContext.runAsUser (the user of jobs) and podSecurityContext.fsGroup (to share a socket with jobs): set both, or set securityContext.runAsUser to null as well" }}
{{- end }}
{{- if eq (int64 .) (int64 $jobs) }}
{{- fail (printf "securityContext.runAsUser and podSecurityContext.runAsUser are both %d: run the operator as another user than its jobs" (int64 .)) }}
{{- end }}
{{- end }}
{{- $catalogs := list }}
{{- range .Values.catalogs }}
{{- if has .name $catalogs }}{{ fail (printf "catalogs lists %s twice" .name) }}{{ end }}
{{- $catalogs = append $catalogs .name }}
{{- end }}
{{- end }}
