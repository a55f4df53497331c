{{/* What everything is called: the release, with the name of the chart where it is not in it. */}}
{{- define "posthorn.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "posthorn.selector" -}}
app.kubernetes.io/name: posthorn
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "posthorn.labels" -}}
{{ include "posthorn.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{/* The secret with the seal key and the first operator key; nothing when the server creates them itself. */}}
{{- define "posthorn.secret" -}}
{{- if .Values.secrets.existingSecret -}}
{{- .Values.secrets.existingSecret -}}
{{- else if or .Values.secrets.sealKey .Values.secrets.operatorKey -}}
{{- include "posthorn.fullname" . -}}
{{- end -}}
{{- end -}}

{{/* What must hold between values; a schema cannot say it. */}}
{{- define "posthorn.check" -}}
{{- $v := .Values -}}
{{- if and $v.secrets.existingSecret (or $v.secrets.sealKey $v.secrets.operatorKey) -}}
{{- fail "secrets: give existingSecret, or sealKey and operatorKey, not both" -}}
{{- end -}}
{{- if eq $v.store.kind "postgres" -}}
{{- if not $v.store.postgres.existingSecret -}}
{{- fail "store.postgres.existingSecret: name the secret that has the URL of the database" -}}
{{- end -}}
{{- if not (or $v.secrets.existingSecret (and $v.secrets.sealKey $v.secrets.operatorKey)) -}}
{{- fail "secrets: with store.kind=postgres all pods share the seal key and the operator key; set secrets.existingSecret, or sealKey and operatorKey" -}}
{{- end -}}
{{- else if $v.push.split -}}
{{- fail "push.split: needs store.kind=postgres; with SQLite there is one pod" -}}
{{- end -}}
{{- if and $v.push.split (not $v.push.enabled) -}}
{{- fail "push.split: needs push.enabled" -}}
{{- end -}}
{{- if and $v.push.enabled (not $v.push.endpointUrl) -}}
{{- fail "push.endpointUrl: name the public URL that browsers give to senders, e.g. https://push.example.com" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.host) -}}
{{- fail "ingress.host: name the host that clients use" -}}
{{- end -}}
{{- if and $v.ingress.enabled $v.push.split (not $v.ingress.pushHost) -}}
{{- fail "ingress.pushHost: name the host that agents connect to" -}}
{{- end -}}
{{- if and $v.ingress.enabled $v.push.enabled -}}
{{- if eq $v.ingress.pushHost $v.ingress.host -}}
{{- fail "ingress.pushHost: must be another host than ingress.host; leave it empty to serve everything on one host" -}}
{{- end -}}
{{- $endpoint := urlParse $v.push.endpointUrl -}}
{{- if not (has $endpoint.hostname (list $v.ingress.host $v.ingress.pushHost)) -}}
{{- fail (printf "push.endpointUrl: %s is neither ingress.host nor ingress.pushHost, so what senders post would not arrive" $endpoint.hostname) -}}
{{- end -}}
{{- if $endpoint.path -}}
{{- fail (printf "push.endpointUrl: without the path %s; the ingress leads to /wpush/ right below the host" $endpoint.path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
