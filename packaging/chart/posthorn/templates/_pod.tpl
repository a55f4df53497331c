{{/* The pod of any kind of node. Given: root, component (server or push), roles of Web Push, resources. */}}
{{- define "posthorn.pod" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- $secret := include "posthorn.secret" $root -}}
metadata:
  labels:
    {{- include "posthorn.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $v.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Pods are replaced when what they read at their start changes.
    checksum/config: {{ include (print $root.Template.BasePath "/config.yaml") $root | sha256sum }}
    checksum/secret: {{ include (print $root.Template.BasePath "/secret.yaml") $root | sha256sum }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with $v.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  # Variables about services would look like settings of Posthorn.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: posthorn
      image: {{ printf "%s:%s" $v.image.repository (default $root.Chart.AppVersion $v.image.tag) }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: [serve, --config, /etc/posthorn/posthorn.yaml{{ if $v.hold }}, --hold{{ end }}]
      env:
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        {{- if eq $v.store.kind "postgres" }}
        - name: DATABASE_URL
          valueFrom:
            secretKeyRef:
              name: {{ $v.store.postgres.existingSecret }}
              key: {{ $v.store.postgres.key }}
        {{- end }}
        {{- if and $secret (or $v.secrets.existingSecret $v.secrets.sealKey) }}
        - name: SEAL_KEY
          valueFrom:
            secretKeyRef:
              name: {{ $secret }}
              key: seal.key
        {{- end }}
        {{- if and $secret (or $v.secrets.existingSecret $v.secrets.operatorKey) }}
        - name: OPERATOR_KEY
          valueFrom:
            secretKeyRef:
              name: {{ $secret }}
              key: operator.key
        {{- end }}
        {{- if and $v.push.enabled (eq $v.store.kind "postgres") }}
        - name: POSTHORN__PUSH__INTERNAL__URL
          value: http://$(POD_IP):8082
        - name: POSTHORN__PUSH__ROLES
          value: {{ .roles | quote }}
        {{- end }}
        {{- with $v.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $v.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: 8080
        - name: admin
          containerPort: 8081
        {{- if and $v.push.enabled (eq $v.store.kind "postgres") }}
        - name: internal
          containerPort: 8082
        {{- end }}
      startupProbe:
        httpGet:
          path: /healthz
          port: admin
        periodSeconds: 5
        failureThreshold: {{ div (add $v.startupSeconds 4) 5 }}
      livenessProbe:
        httpGet:
          path: /healthz
          port: admin
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: admin
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      lifecycle:
        preStop:
          # Until load balancers have noticed that the pod leaves.
          sleep:
            seconds: 5
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: config
          mountPath: /etc/posthorn
          readOnly: true
        - name: data
          mountPath: /var/lib/posthorn
        - name: tmp
          mountPath: /tmp
        {{- with $v.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "posthorn.fullname" $root }}
    - name: tmp
      emptyDir: {}
    {{- with $v.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if eq $v.store.kind "postgres" }}
    - name: data
      emptyDir: {}
    {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
