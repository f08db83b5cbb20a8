// Makes a token and writes it to the Secret `sallyport-token`.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

const env = process.env
const token = execFileSync(
  process.execPath,
  [
    env.SALLYPORT_BIN ?? '/app/bin/sallyport.js',
    ...['token', 'create', '--key', env.KEY_FILE ?? '/key/private.jwk'],
    ...['--runtime', env.RUNTIME, '--ttl', env.TTL, '--audience', env.AUDIENCE],
    ...(env.FLAGS ?? '').split(/\s+/).filter(Boolean),
  ],
  { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], timeout: 30_000 },
).trim()

const account = env.ACCOUNT_DIR ?? '/var/run/secrets/kubernetes.io/serviceaccount'
const host = env.KUBERNETES_SERVICE_HOST ?? ''
const api = env.API ?? `https://${host.includes(':') ? `[${host}]` : host}:${env.KUBERNETES_SERVICE_PORT_HTTPS}`
const answer = await fetch(`${api}/api/v1/namespaces/${env.NAMESPACE}/secrets/sallyport-token`, {
  method: 'PATCH',
  headers: {
    authorization: `Bearer ${readFileSync(`${account}/token`, 'utf8').trim()}`,
    'content-type': 'application/merge-patch+json',
  },
  body: JSON.stringify({ data: { token: Buffer.from(token).toString('base64') } }),
  signal: AbortSignal.timeout(20_000),
})
if (!answer.ok) {
  const remedy =
    answer.status === 404 ? ': there is no Secret sallyport-token, so apply token.yaml again' : '; the old token stays'
  console.error(`the Kubernetes API answered ${answer.status}${remedy}`)
  process.exit(1)
}
console.error(`token for runtime ${env.RUNTIME} renewed`)
