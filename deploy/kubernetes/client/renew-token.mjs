// Makes a token and puts it into the Secret `sallyport-token`, in one write.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

const env = process.env
const token = execFileSync(
  process.execPath,
  [
    env.SALLYPORT_BIN ?? '/app/bin/sallyport.js',
    ...['token', 'create', '--key', env.KEY_FILE ?? '/key/private.jwk'],
    ...['--runtime', env.RUNTIME, '--ttl', env.TTL, '--audience', env.AUDIENCE],
  ],
  { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], timeout: 30_000 },
).trim()

const account = env.ACCOUNT_DIR ?? '/var/run/secrets/kubernetes.io/serviceaccount'
const api = env.API ?? `https://${env.KUBERNETES_SERVICE_HOST}:${env.KUBERNETES_SERVICE_PORT_HTTPS}`
const secrets = `${api}/api/v1/namespaces/${env.NAMESPACE}/secrets`
const secret = {
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'sallyport-token' },
  data: { token: Buffer.from(token).toString('base64') },
}

async function send(method, url, type) {
  return fetch(url, {
    method,
    headers: {
      authorization: `Bearer ${readFileSync(`${account}/token`, 'utf8').trim()}`,
      'content-type': type,
    },
    body: JSON.stringify(secret),
    signal: AbortSignal.timeout(20_000),
  })
}

let answer = await send('PATCH', `${secrets}/sallyport-token`, 'application/merge-patch+json')
if (answer.status === 404) answer = await send('POST', secrets, 'application/json')
if (!answer.ok) {
  console.error(`the Kubernetes API answered ${answer.status}; the old token stays`)
  process.exit(1)
}
console.error(`token for runtime ${env.RUNTIME} renewed`)
