interface NginxOptions {
  /** A folder for its temporary files, which nothing else uses. */
  readonly folder: string
  readonly port: number
  readonly certificate: string
  readonly key: string
  readonly ca: string
  /** `https://127.0.0.1:8081`. */
  readonly router: string
}

/** A configuration for nginx in the foreground and as one process, with its files in `folder` and `http` in the block of that name. */
export function nginxFile(folder: string, http: string, errorLog = 'stderr notice', connections = 1024): string {
  return `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log ${errorLog};
events { worker_connections ${connections}; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
${http}}
`
}

/** An ingress with one server, in the form of `docs/ingress.md`. */
export function nginxConfig(options: NginxOptions): string {
  const { folder, port, certificate, key, ca, router } = options
  return nginxFile(
    folder,
    `\
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  server {
    listen 127.0.0.1:${port} ssl http2;
    ssl_certificate ${certificate};
    ssl_certificate_key ${key};
    client_max_body_size 0;
    location / {
      proxy_pass ${router};
      proxy_ssl_trusted_certificate ${ca};
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
      proxy_http_version 1.1;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_read_timeout 1d;
      proxy_send_timeout 1d;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Request-Id $request_id;
      proxy_set_header Forwarded "";
    }
  }
`,
  )
}
