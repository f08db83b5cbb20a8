{{- define "sallyport.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sallyport.image" -}}
{{ print .repository (empty .digest | ternary (print ":" .tag) (print "@" .digest)) | quote }}
{{- end }}

{{/* Settings as environment variables, with lists joined by commas. */}}
{{- define "sallyport.settings" -}}
{{- range $name, $value := . }}
SALLYPORT_{{ $name | upper | replace "." "_" | replace "-" "_" }}: {{ if kindIs "slice" $value }}{{ join "," $value | quote }}{{ else if kindIs "string" $value }}{{ $value | quote }}{{ else }}{{ $value | toJson | quote }}{{ end }}
{{- end }}
{{- end }}

{{/* The domains, joined by commas. Takes the server's values. */}}
{{- define "sallyport.domains" -}}
{{ index .config "domain" | join "," | nospace | lower | replace ".," "," | trimSuffix "." }}
{{- end }}

{{/* The URL that clients are told, with `*` for the runtime. Callers use the Service's port, not the container's. Takes the server's values. */}}
{{- define "sallyport.publicUrl" -}}
{{- $domain := include "sallyport.domains" . | splitList "," | first }}
{{- index .config "public.url" | default (print "https://*." $domain ":" .service.port | trimSuffix ":443") }}
{{- end }}

{{/* The ports of all URLs in a component's settings, whatever the address. */}}
{{- define "sallyport.fetches" -}}
{{- $ports := list }}
{{- range list "auth.jwks.url" "auth.revocations.url" "access.jwt.jwks.url" "access.forward-auth.url" "tracing.endpoint" }}
{{- with index $ . }}
{{- $url := urlParse . }}
{{- $ports = append $ports (regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "80" "443" (eq $url.scheme "http"))) }}
{{- end }}
{{- end }}
{{- with uniq $ports }}
- ports: [{{ range $i, $port := . }}{{ if $i }}, {{ end }}{ port: {{ $port }} }{{ end }}]
{{- end }}
{{- end }}

{{/* What every pod has. OpenShift assigns user and group ids itself. */}}
{{- define "sallyport.pod" -}}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: [{{ range $i, $name := . }}{{ if $i }}, {{ end }}{ name: {{ $name | quote }} }{{ end }}]
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- if not .Values.openshift }}
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  {{- end }}
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "sallyport.containerSecurity" -}}
securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }
{{- end }}

{{- define "sallyport.probes" -}}
readinessProbe: { httpGet: { path: /readyz, port: health }, periodSeconds: 2 }
livenessProbe: { httpGet: { path: /livez, port: health }, periodSeconds: 10, failureThreshold: 6 }
{{- end }}

{{/* Spreads the pods over the nodes that they may use. Takes a dict of "name" and "part". */}}
{{- define "sallyport.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: { matchLabels: { app.kubernetes.io/name: {{ .name }} } }
{{- end }}

{{- define "sallyport.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Volumes are numbered, since a Secret's name may be too long for a volume, taken already, or listed twice. */}}
{{- define "sallyport.mounts" -}}
{{- range $i, $mount := .mounts }}
- { name: mount-{{ $i }}, mountPath: {{ $mount.path | quote }}, readOnly: true }
{{- end }}
{{- end }}

{{/* What the pods of a component and its check have. Takes a dict of "root" and "name". */}}
{{- define "sallyport.container" -}}
{{- $container := include (printf "sallyport.%s.container" .name) .root }}
{{- $taken := dict }}
{{- range (fromYaml $container).volumeMounts }}
{{- $path := .mountPath | trimSuffix "/" }}
{{- if hasKey $taken $path }}{{ fail (printf "%s.mounts: %s is taken" $.name $path) }}{{ end }}
{{- $_ := set $taken $path true }}
{{- end }}
{{- $container }}
{{- end }}

{{- define "sallyport.mountedVolumes" -}}
{{- range $i, $mount := .mounts }}
- { name: mount-{{ $i }}, secret: { secretName: {{ $mount.secret | quote }} } }
{{- end }}
{{- end }}

{{/* Changes when the settings do, so that pods are replaced. */}}
{{- define "sallyport.annotations" -}}
annotations: {{ toJson (merge (dict "checksum/settings" (list .config .routes | toJson | sha256sum)) .podAnnotations) }}
{{- end }}

{{/* Takes a dict of "name" and "part". */}}
{{- define "sallyport.terminationGrace" -}}
{{- $grace := .part.config.grace | default "30s" }}
{{- $unit := regexFind "[a-z]+" $grace }}
{{- $seconds := mulf (trimSuffix $unit $grace) (get (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400) $unit) }}
{{- $given := .part.terminationGracePeriodSeconds }}
{{- if lt (float64 $given) (addf $seconds 15) }}{{ fail (printf "%s.terminationGracePeriodSeconds: at least 15 more than grace" .name) }}{{ end }}
{{- int64 $given }}
{{- end }}

{{- define "sallyport.autoscaler" -}}
{{- if lt (int .part.autoscaling.maxReplicas) (int .part.replicas) }}{{ fail "autoscaling.maxReplicas: less than replicas" }}{{ end -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels: {{- include "sallyport.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ .name }} }
  minReplicas: {{ .part.replicas }}
  maxReplicas: {{ .part.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource: { name: cpu, target: { type: Utilization, averageUtilization: {{ .part.autoscaling.cpu }} } }
{{- end }}

{{- define "sallyport.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "sallyport.labels" .root | nindent 4 }}
spec:
  # Also of a single pod, or its node could not be drained.
  maxUnavailable: 1
  selector: { matchLabels: { app.kubernetes.io/name: {{ .label }} } }
{{- end }}

{{/*
`helm test` runs `sallyport check` where the component runs, with the same files. The pod also has the component's label, so that the
same NetworkPolicies apply. Its readiness gate is never set, so no Service sends traffic to it. Takes a dict of "root", "name" and "part".
*/}}
{{- define "sallyport.check" -}}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
apiVersion: v1
kind: Pod
metadata:
  name: sallyport-check-{{ .name }}
  labels:
    app.kubernetes.io/name: sallyport-{{ .name }}
    {{- include "sallyport.labels" .root | nindent 4 }}
  annotations: {{ toJson (merge $hook .part.podAnnotations) }}
spec:
  {{- include "sallyport.pod" .root | nindent 2 }}
  automountServiceAccountToken: false
  restartPolicy: Never
  activeDeadlineSeconds: 300
  readinessGates: [{ conditionType: sallyport/takes-no-traffic }]
  {{- if eq (dig "inbox" "kind" "" .part) "volume" }}
  # The server's volume can be mounted on one node only.
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector: { matchLabels: { app.kubernetes.io/name: sallyport-{{ .name }} } }
  {{- end }}
  {{- include "sallyport.placement" .part | nindent 2 }}
  containers:
    - name: {{ .name }}
      args: [check, {{ .name }}, --termination-grace, {{ int64 .part.terminationGracePeriodSeconds }}s]
      {{- include "sallyport.container" . | nindent 6 }}
  volumes:
    {{- include (printf "sallyport.%s.volumes" .name) .root | nindent 4 }}
{{- end }}
