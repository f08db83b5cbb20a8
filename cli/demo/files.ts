import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createAuthority, createKeys, createServerCertificate, createToken, writeFiles } from '../../certs/index.ts'

export const DOMAIN = 'tunnels.localhost'
/** The runtime behind the request-routing service, and the runtime whose client has an embedded router. */
const RUNTIMES = { service: 'demo', embedded: 'embedded' } as const
export const HOSTS = {
  tunnel: `${RUNTIMES.service}.${DOMAIN}`,
  embedded: `${RUNTIMES.embedded}.${DOMAIN}`,
  ingress: `ingress.${DOMAIN}`,
} as const
export const UI_ORIGIN = 'https://ui.example.com'
export const WEBHOOK_PATH = '/webhooks/demo/push/github'

/** All files of the demo, in one temporary folder that is removed with it. */
export interface DemoFiles {
  readonly folder: string
  readonly ca: string
  readonly certificate: string
  readonly key: string
  readonly jwks: string
  readonly tokens: { readonly service: string; readonly embedded: string }
  readonly webhookSecret: string
  /** PEM text, for clients in this process. */
  readonly caPem: string
  readonly secret: string
  remove(): Promise<void>
}

/** Creates a CA, a server certificate, a key pair, two tokens and a webhook secret. */
export async function makeFiles(): Promise<DemoFiles> {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-demo-'))
  const at = (name: string) => join(folder, name)
  const authority = await createAuthority({ name: 'Sallyport demo CA', validDays: 30 })
  const hosts = [`*.${DOMAIN}`, 'localhost', '127.0.0.1', '::1']
  const server = await createServerCertificate(authority, { hosts, validDays: 30 })
  const keys = await createKeys()
  const token = async (runtime: string) => (await createToken({ key: keys.privateJwk, runtime, ttl: '24h' })).token
  const secret = "It's a Secret to Everybody"
  await writeFiles([
    { path: at('ca.pem'), text: authority.certificate, secret: false },
    { path: at('server.pem'), text: server.certificate, secret: false },
    { path: at('server-key.pem'), text: server.key, secret: true },
    { path: at('jwks.json'), text: JSON.stringify(keys.jwks), secret: false },
    { path: at('demo.token'), text: await token(RUNTIMES.service), secret: true },
    { path: at('embedded.token'), text: await token(RUNTIMES.embedded), secret: true },
    { path: at('webhook.secret'), text: secret, secret: true },
  ])
  return {
    folder,
    ca: at('ca.pem'),
    certificate: at('server.pem'),
    key: at('server-key.pem'),
    jwks: at('jwks.json'),
    tokens: { service: at('demo.token'), embedded: at('embedded.token') },
    webhookSecret: at('webhook.secret'),
    caPem: authority.certificate,
    secret,
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}

/**
 * The demo's route table: one service that runs, one event source, and one service that does not run. For a client, the server
 * stores the webhooks that cannot be delivered.
 */
export async function writeRoutes(
  files: DemoFiles,
  appProxy: string,
  eventSource: string,
  isClient: boolean,
): Promise<string> {
  const path = join(files.folder, isClient ? 'client-routes.yaml' : 'routes.yaml')
  const inbox = isClient
    ? `\n    inbox: { answerWithin: 1s, verify: { scheme: github, secrets: [{ file: webhook.secret }], at: edge } }`
    : ''
  await writeFile(
    path,
    `routes:
  - name: app-proxy
    match: { path: /app-proxy }
    target: http://${appProxy}
    cors: { origins: ["${UI_ORIGIN}"], credentials: true }
  - name: webhooks
    match: { path: "/webhooks/{namespace}/{eventSource}", methods: [POST] }
    target: "http://{eventSource}-eventsource-svc.{namespace}.svc.cluster.local:80"
    allow: { namespace: [demo] }
    limits: { bodyBytes: 26214400 }${inbox}
  - name: nobody-there
    match: { path: /nobody-there }
    target: http://127.0.0.1:1
    cors: { origins: ["${UI_ORIGIN}"], credentials: true }
resolve: { "push-eventsource-svc.demo.svc.cluster.local:80": "${eventSource}" }
`,
  )
  return path
}

/** A subfolder of the demo's folder, for one part. */
export async function partFolder(files: DemoFiles, name: string): Promise<string> {
  const folder = join(files.folder, name)
  await mkdir(folder, { recursive: true })
  return folder
}
