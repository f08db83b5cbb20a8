import type { CommandFlag, Flags } from './args.ts'
import type { Command } from './command.ts'
import { COMPONENTS, type ComponentName } from './config/components.ts'
import type { Setting, Settings } from './config/setting.ts'

const flag = (placeholder: string, about: string): CommandFlag => ({ placeholder, about })
const force = { force: flag('', 'Overwrites existing files.') }
const adminFlags: Flags = {
  admin: flag('URL', 'Admin listener to ask. Default: found automatically on this machine.'),
  'admin.token.file': flag('FILE', 'File with its bearer token. Default: found automatically on this machine.'),
  json: flag('', 'Prints JSON.'),
}
const keySet = { jwks: flag('FILE', 'The key set (JWKS) that servers read.') }
const json = { json: flag('', 'Prints JSON.') }
const days = { days: flag('N', 'Days of validity; default 397, but never beyond the expiry of its authority.') }
const routes = {
  routes: flag('FILE', 'The route table (YAML).'),
  preset: flag('gitops-runtime', 'A built-in route table, with the same --preset.* flags as the client.'),
}

const SERVICES: readonly Command[] = [
  {
    name: 'server',
    about: 'Runs the tunnel server, which callers and tunnel clients connect to.',
    example:
      'sallyport server --domain tunnels.example.com --auth.jwks.file keys/jwks.json \\\n' +
      '    --control.tls.cert certs/server.pem --control.tls.key certs/server-key.pem',
    flags: {},
    component: 'server',
    load: async () => (await import('./commands/server.ts')).runServer,
  },
  {
    name: 'client',
    about:
      'Runs the tunnel client, which dials out to the server and forwards the requests that it receives. ' +
      'TARGET is short for --target: a port of this machine, host:port or a URL.',
    example:
      'sallyport client --server wss://connect.tunnels.example.com:8443 --ca certs/ca.pem \\\n' +
      '    --token.file token 3000',
    positionals: ['[TARGET]'],
    flags: {},
    component: 'client',
    load: async () => (await import('./commands/client.ts')).runClient,
  },
  {
    name: 'router',
    about: 'Runs the request router as a service of its own, behind an ingress or a tunnel client.',
    example: 'sallyport router --routes routes.yaml --trusted-proxies 127.0.0.1',
    flags: {},
    component: 'router',
    load: async () => (await import('./commands/router.ts')).runRouter,
  },
]

const CERTS: readonly Command[] = [
  {
    name: 'certs init',
    about: 'Creates an authority and a server certificate: ca.pem, ca-key.pem, server.pem, server-key.pem.',
    example: "sallyport certs init --out certs --host tunnels.example.com '*.tunnels.example.com'",
    flags: {
      out: flag('DIR', 'Where the files go.'),
      host: { ...flag('NAME...', 'DNS names, wildcards and IP addresses of the server.'), list: true, variadic: true },
      ...days,
      ...force,
    },
    load: async () => (await import('./commands/certs.ts')).certsInit,
  },
  {
    name: 'certs server',
    about: 'Creates another server certificate with the authority of `certs init`: server.pem, server-key.pem.',
    example: "sallyport certs server --ca certs --out certs --host '*.tunnels.example.com' --force",
    flags: {
      out: flag('DIR', 'Where the files go.'),
      host: { ...flag('NAME...', 'DNS names, wildcards and IP addresses of the server.'), list: true, variadic: true },
      ca: flag('DIR', 'Folder with ca.pem and ca-key.pem. Default: the same as --out.'),
      ...days,
      ...force,
    },
    load: async () => (await import('./commands/certs.ts')).certsServer,
  },
  {
    name: 'certs client',
    about: 'Creates a client certificate for one runtime: NAME.pem, NAME-key.pem.',
    example: 'sallyport certs client --out certs --runtime demo',
    flags: {
      out: flag('DIR', 'Where the files go.'),
      runtime: flag('NAME', 'The only runtime that its holder may serve.'),
      ca: flag('DIR', 'Folder with ca.pem and ca-key.pem. Default: the same as --out.'),
      ...days,
      ...force,
    },
    load: async () => (await import('./commands/certs.ts')).certsClient,
  },
  {
    name: 'certs replica',
    about: 'Creates the certificate that replicas identify themselves with: replica.pem, replica-key.pem.',
    example: 'sallyport certs replica --ca certs --out certs',
    flags: {
      out: flag('DIR', 'Where the files go.'),
      ca: flag('DIR', 'Folder with ca.pem and ca-key.pem. Default: the same as --out.'),
      ...days,
      ...force,
    },
    load: async () => (await import('./commands/certs.ts')).certsReplica,
  },
  {
    name: 'certs renew',
    about: 'Renews a certificate and its key in place, for the same names and use.',
    example: 'sallyport certs renew certs/server.pem --before 30d',
    positionals: ['FILE'],
    flags: {
      ca: flag('DIR', 'Folder with ca.pem and ca-key.pem. Default: the folder of the certificate.'),
      key: flag('FILE', 'Its key. Default: NAME-key.pem beside NAME.pem.'),
      before: flag('TIME', 'Renews only what expires within this time, such as 30d.'),
      ...days,
    },
    load: async () => (await import('./commands/certs.ts')).certsRenew,
  },
  {
    name: 'certs export',
    about: 'Puts a certificate, its key and its authority into a PKCS#12 file, for Java agents.',
    example: 'sallyport certs export --cert certs/demo.pem --p12 demo.p12 --password.file password',
    flags: {
      p12: flag('FILE', 'The file to write.'),
      'password.file': flag('FILE', 'File with the password of the PKCS#12 file.'),
      cert: flag('FILE', 'The certificate (PEM).'),
      key: flag('FILE', 'Its private key (PEM). Default: NAME-key.pem beside NAME.pem.'),
      ca: flag('FILE', 'Its authorities (PEM). Default: ca.pem beside the certificate, if there is one.'),
      ...force,
    },
    load: async () => (await import('./commands/certs.ts')).certsExport,
  },
  {
    name: 'certs show',
    about: 'Describes the certificates in a file.',
    example: 'sallyport certs show certs/server.pem',
    positionals: ['FILE'],
    flags: json,
    load: async () => (await import('./commands/certs.ts')).certsShow,
  },
]

const TOKENS: readonly Command[] = [
  {
    name: 'keys create',
    about: 'Creates a key pair for tokens: private.jwk (secret) signs them, jwks.json (for the server) verifies them.',
    example: 'sallyport keys create --out keys',
    flags: {
      out: flag('DIR', 'Where the files go.'),
      alg: flag('ALG', 'EdDSA (default), ES256, RS256 or PS256.'),
      ...force,
    },
    load: async () => (await import('./commands/keys.ts')).keysCreate,
  },
  {
    name: 'keys add',
    about: 'Creates another key and adds its public half to a key set.',
    example: 'sallyport keys add --jwks keys/jwks.json --out keys/next.jwk',
    flags: {
      ...keySet,
      out: flag('FILE', 'Where to write the new private key (0600).'),
      alg: flag('ALG', 'EdDSA (default), ES256, RS256 or PS256.'),
      ...force,
    },
    load: async () => (await import('./commands/keys.ts')).keysAdd,
  },
  {
    name: 'keys list',
    about: 'Shows the keys of a set.',
    example: 'sallyport keys list --jwks keys/jwks.json',
    flags: { ...keySet, ...json },
    load: async () => (await import('./commands/keys.ts')).keysList,
  },
  {
    name: 'keys retire',
    about:
      'Removes a key from a set. Tokens that it signed are refused from now on; live sessions last until their tokens expire.',
    example: 'sallyport keys retire --jwks keys/jwks.json --kid ID',
    flags: { ...keySet, kid: flag('ID', 'Id of the key, or a prefix of it.') },
    load: async () => (await import('./commands/keys.ts')).keysRetire,
  },
  {
    name: 'token create',
    about: 'Signs a token for one runtime and prints it, and nothing else, on stdout.',
    example: 'sallyport token create --key keys/private.jwk --runtime demo --ttl 1h > token',
    flags: {
      key: flag('FILE', 'private.jwk of `keys create`.'),
      runtime: flag('NAME', 'The runtime that the token names.'),
      ttl: flag('TIME', 'How long it is valid: 90s, 30m, 1h (default), 90d.'),
      audience: flag('AUDIENCE', 'Claim `aud`; default sallyport.'),
      issuer: flag('ISSUER', 'Claim `iss`; default none.'),
      cert: flag('FILE', 'Binds the token to this client certificate.'),
      host: {
        ...flag('NAME', 'A host that the runtime may claim as its own, such as hooks.customer.com; may repeat.'),
        list: true,
      },
      out: flag('FILE', 'Writes the token to this file (0600, atomically, replacing it) instead of stdout.'),
    },
    load: async () => (await import('./commands/token.ts')).tokenCreate,
  },
  {
    name: 'token inspect',
    about: 'Shows the contents of a token, without checking its signature.',
    example: 'sallyport token inspect token',
    positionals: ['[FILE]'],
    flags: json,
    load: async () => (await import('./commands/token.ts')).tokenInspect,
  },
]

const ROUTES: Command = {
  name: 'route test',
  about: 'Shows which route matches a URL, the path it is rewritten to and its target, or why no route matches.',
  example: 'sallyport route test https://demo.tunnels.example.com/webhooks/argo-events/github --routes routes.yaml',
  positionals: ['URL'],
  flags: {
    ...routes,
    method: flag('METHOD', 'Default GET.'),
    header: { ...flag('"NAME: VALUE"', 'A header field of the request; may repeat.'), list: true },
    caller: flag('ADDRESS', 'Address of the caller, to check against allow.callers.'),
    ...json,
    ...presetFlags(),
  },
  load: async () => (await import('./commands/route.ts')).routeTest,
}

const session = flag('ID', 'A session, by its id or a prefix of it.')
const runtime = flag('NAME', 'All sessions of this runtime.')
const reason = flag('TEXT', 'Reason to give the client.')
const grace = flag('TIME', 'How long open exchanges may continue; default 30s.')

const LIFECYCLE: readonly Command[] = [
  {
    name: 'sessions list',
    about: 'Lists the sessions of a server.',
    example: 'sallyport sessions list --runtime demo',
    flags: { runtime: flag('NAME', 'Only sessions of this runtime.'), ...adminFlags },
    load: async () => (await import('./commands/sessions.ts')).sessionsList,
  },
  {
    name: 'sessions show',
    about: 'Shows everything about one session.',
    example: 'sallyport sessions show --session 9066e9d5',
    flags: { session, ...adminFlags },
    load: async () => (await import('./commands/sessions.ts')).sessionsShow,
  },
  {
    name: 'sessions drain',
    about: 'Asks clients to move to new sessions. Nothing is lost.',
    example: 'sallyport sessions drain --runtime demo',
    flags: { session, runtime, reason, grace, ...adminFlags },
    load: async () => (await import('./commands/sessions.ts')).sessionsDrain,
  },
  {
    name: 'sessions close',
    about: 'Ends sessions at once. Open exchanges are lost, and clients reconnect if they may.',
    example: 'sallyport sessions close --session 9066e9d5',
    flags: { session, runtime, reason, ...adminFlags },
    load: async () => (await import('./commands/sessions.ts')).sessionsClose,
  },
  {
    name: 'runtimes list',
    about: 'Lists the runtimes that have a session: instances, epoch, streams.',
    example: 'sallyport runtimes list',
    flags: adminFlags,
    load: async () => (await import('./commands/runtimes.ts')).runtimesList,
  },
  {
    name: 'traces',
    about:
      'Shows the latest requests traced by a server that runs with --tracing recent, span by span, including the spans that clients return.',
    example: 'sallyport traces --last 1',
    flags: { last: flag('N', 'How many to show; default 5, at most 100.'), ...adminFlags },
    load: async () => (await import('./commands/traces.ts')).traces,
  },
  {
    name: 'revoke',
    about: 'Refuses tokens from now on, and ends their sessions at once. A token must match all the flags given.',
    example: 'sallyport revoke --runtime demo --until +90d',
    flags: {
      jti: flag('ID', 'The token with this id (claim `jti`).'),
      runtime: flag(
        'NAME',
        'Tokens of this runtime. Only those issued up to now, unless --future or --issued-before is given.',
      ),
      'issued-before': flag('TIME', 'Tokens issued before this time: now, 2026-11-21T08:00Z, -1h.'),
      future: flag('', 'Also refuses tokens of the runtime that are issued from now on.'),
      until: flag('TIME', 'When the rule may be dropped, such as +90d; default never.'),
      ...adminFlags,
    },
    load: async () => (await import('./commands/revoke.ts')).revoke,
  },
  {
    name: 'revocations list',
    about: 'Lists all revocations: those made by hand, and those from the file, the directory and the URL.',
    example: 'sallyport revocations list',
    flags: adminFlags,
    load: async () => (await import('./commands/revoke.ts')).revocationsList,
  },
  {
    name: 'revocations remove',
    about: 'Removes a revocation on all replicas.',
    example: 'sallyport revocations remove 5d41402abc4b',
    positionals: ['ID'],
    flags: adminFlags,
    load: async () => (await import('./commands/revoke.ts')).revocationsRemove,
  },
  {
    name: 'drain',
    about:
      'Drains a server as SIGTERM does, but leaves it running. It is no longer ready, takes no new connections and asks its clients to move.',
    example: 'sallyport drain --admin http://127.0.0.1:9090',
    flags: {
      replica: flag(
        'NAME',
        'Drains another server that shares the directory, named by its --replica. Default: the server asked.',
      ),
      grace,
      ...adminFlags,
    },
    load: async () => (await import('./commands/drain.ts')).drain,
  },
]

const WEBHOOKS: readonly Command[] = [
  {
    name: 'webhook send',
    about: 'Sends a webhook, signed the way its sender would sign it, and prints the answer.',
    example:
      'sallyport webhook send --scheme github --secret-file secret https://demo.tunnels.example.com/webhooks/a/b',
    positionals: ['URL'],
    flags: {
      scheme: flag(
        'NAME',
        'github (default), gitea, forgejo, bitbucket, gitlab, gitlab-signing, standard-webhooks, slack, stripe, hmac or bearer.',
      ),
      'secret-file': flag('FILE', 'File with the shared secret. A trailing line break is ignored.'),
      body: flag('FILE', 'File with the body, sent byte for byte. Default: a small JSON object.'),
      id: flag('ID', 'Id of the delivery, for senders that use one. Default: random.'),
      header: { ...flag('"NAME: VALUE"', 'Adds or replaces a header field; may repeat.'), list: true },
      'hmac.header': flag('NAME', 'For hmac: header field that carries the signature.'),
      'hmac.prefix': flag('TEXT', 'For hmac: prefix of the digest, such as sha256=.'),
      'hmac.encoding': flag('hex|base64', 'For hmac: encoding of the digest; default hex.'),
      'hmac.hash': flag('sha256|sha512', 'For hmac: hash function; default sha256.'),
      ca: flag('FILE', 'Authorities (PEM) to check the URL with. Default: those of the system.'),
      ...json,
    },
    load: async () => (await import('./commands/webhook.ts')).webhookSend,
  },
]

const inboxFlags: Flags = {
  runtime: flag('NAME', 'Only webhooks of this runtime.'),
  lane: flag('LANE', 'Only webhooks of this lane, as `inbox list --json` shows it.'),
  state: flag('waiting|dead|delivered', 'Only webhooks in this state.'),
  since: flag('TIME', 'Only webhooks that arrived after this time: 2026-11-21T08:00Z or -1h.'),
}

function inboxCommand(name: string, about: string, example: string, more: Partial<Command>, run: InboxRun): Command {
  return {
    ...{ name: `inbox ${name}`, about, example: `sallyport inbox ${name}${example}`, flags: adminFlags, ...more },
    load: async () => (await import('./commands/inbox.ts'))[run],
  }
}

type InboxRun = keyof typeof import('./commands/inbox.ts')

const limit = flag('N', 'How many at most, newest first; default 200.')
const chosen = { positionals: ['[ID]'], flags: { ...inboxFlags, ...adminFlags } }
const ofRuntime = { flags: { runtime: flag('NAME', 'The runtime. Required.'), ...adminFlags } }

const INBOX: readonly Command[] = [
  inboxCommand(
    'list',
    'Lists the webhooks that servers keep.',
    ' --state dead',
    { flags: { ...inboxFlags, limit, ...adminFlags } },
    'inboxList',
  ),
  inboxCommand('show', 'Shows one webhook, with its head.', ' 5d41402a', { positionals: ['ID'] }, 'inboxShow'),
  inboxCommand(
    'replay',
    'Delivers dead letters again, and waiting webhooks at once. Each keeps its id.',
    ' --runtime demo --state dead',
    chosen,
    'inboxReplay',
  ),
  inboxCommand('drop', 'Deletes webhooks for good.', ' 5d41402a', chosen, 'inboxDrop'),
  inboxCommand(
    'pause',
    'Stops deliveries to a runtime until `inbox resume`. New webhooks are stored.',
    ' --runtime demo',
    ofRuntime,
    'inboxPause',
  ),
  inboxCommand('resume', 'Ends an `inbox pause`.', ' --runtime demo', ofRuntime, 'inboxResume'),
  inboxCommand(
    'export',
    'Prints webhooks with head and body, one JSON object per line. The body is base64.',
    ' --runtime demo',
    { flags: { ...inboxFlags, limit: flag('N', 'How many at most, newest first; default all.'), ...adminFlags } },
    'inboxExport',
  ),
]

function inspectCommand(
  name: string,
  about: string,
  example: string,
  more: Partial<Command>,
  run: InspectRun,
): Command {
  return {
    ...{ name: `inspect ${name}`, about, example: `sallyport inspect ${name}${example}`, flags: adminFlags, ...more },
    load: async () => (await import('./commands/inspect.ts'))[run],
  }
}

type InspectRun = keyof typeof import('./commands/inspect.ts')

const { admin, 'admin.token.file': adminTokenFile } = adminFlags as Record<'admin' | 'admin.token.file', CommandFlag>
const adminOnly: Flags = { admin, 'admin.token.file': adminTokenFile }
const oneExchange = { positionals: ['ID'] }

const INSPECT: readonly Command[] = [
  inspectCommand(
    'tail',
    'Shows the latest requests of a client that runs with `--inspect`, and new ones as they arrive.',
    '',
    { flags: { 'no-follow': flag('', 'Shows the requests so far and exits.'), ...adminFlags } },
    'inspectTail',
  ),
  inspectCommand(
    'show',
    'Shows one request: heads, bodies, messages, timings.',
    ' 3fa9-1c',
    oneExchange,
    'inspectShow',
  ),
  inspectCommand(
    'replay',
    'Sends a request to the target again, and shows both answers side by side.',
    ' 3fa9-1c --yes',
    {
      ...oneExchange,
      flags: {
        yes: flag('', 'Allows methods that are not safe. The target may act on the request twice.'),
        method: flag('METHOD', 'Replaces the method.'),
        path: flag('PATH', 'Replaces the path and its query.'),
        header: { ...flag('"NAME: VALUE"', 'Adds or replaces a header field; may repeat.'), list: true },
        body: flag('FILE', 'Replaces the body.'),
        ...adminFlags,
      },
    },
    'inspectReplay',
  ),
  inspectCommand(
    'har',
    'Writes all requests to a HAR 1.2 file, for the network panel of a browser.',
    ' --out requests.har',
    { flags: { out: flag('FILE', 'The file to write. Required.'), ...force, ...adminOnly } },
    'inspectHar',
  ),
  inspectCommand(
    'curl',
    'Prints a request as a curl command. Fill in what was redacted.',
    ' 3fa9-1c',
    { ...oneExchange, flags: adminOnly },
    'inspectCurl',
  ),
]

const SHELLS = {
  bash: ['sallyport completion bash > ~/.local/share/bash-completion/completions/sallyport', 'completionBash'],
  zsh: ['sallyport completion zsh > ~/.zfunc/_sallyport', 'completionZsh'],
  fish: ['sallyport completion fish > ~/.config/fish/completions/sallyport.fish', 'completionFish'],
} as const

const COMPLETIONS: readonly Command[] = Object.entries(SHELLS).map(([shell, [example, run]]) => ({
  name: `completion ${shell}`,
  about: `Prints the script that completes commands and flags in ${shell}.`,
  example,
  flags: {},
  load: async () => (await import('./commands/completion.ts'))[run],
}))

const OTHERS: readonly Command[] = [
  {
    name: 'status',
    about: 'Shows the state of the components on this machine: sessions, streams and when they connected.',
    example: 'sallyport status --watch',
    flags: { watch: flag('', 'Refreshes every two seconds, until Ctrl-C.'), ...adminFlags },
    load: async () => (await import('./commands/status.ts')).status,
  },
  {
    name: 'ui',
    about: 'Prints a link to the web page of a running component. The link works once, within ten minutes.',
    example: 'sallyport ui --admin http://127.0.0.1:9091',
    flags: adminFlags,
    load: async () => (await import('./commands/ui.ts')).ui,
  },
  {
    name: 'migrate frp',
    about: "Converts frp's frpc.toml to client configurations and reports what it cannot convert.",
    example: 'sallyport migrate frp frpc.toml --domain tunnels.example.com --out sallyport',
    positionals: ['FILE'],
    flags: {
      domain: flag('NAME', 'Domain of the runtimes: the --domain of the server.'),
      out: flag('DIR', 'Where the files go: RUNTIME.yaml and RUNTIME-routes.yaml for each runtime.'),
      ...force,
    },
    load: async () => (await import('./commands/migrate.ts')).migrateFromFrp,
  },
  {
    name: 'load-test',
    about:
      'Puts a steady load on a running server and client and writes a report. With --direct, it shows the overhead.',
    example: 'sallyport load-test https://demo.tunnels.example.com --direct http://127.0.0.1:3000',
    positionals: ['[URL]'],
    flags: {
      direct: flag('URL', 'The same upstream without the tunnel, measured alternately with it.'),
      header: { ...flag('"NAME: VALUE"', 'A header field of each request; may repeat.'), list: true },
      ca: flag('FILE', 'Authorities (PEM) to check the URLs with. Default: those of the system.'),
      connections: flag('N', 'Connections; default 10.'),
      rate: flag('N|max', 'Requests per second over all connections; default 50. max: closed loops with autocannon.'),
      duration: flag('TIME', 'Duration of each scenario on each URL; default 30s.'),
      bailout: flag('PERCENT', 'Stops when this share of answers is wrong; default 5%.'),
      only: { ...flag('NAME', 'small, webhook, bulk, websocket or sse; may repeat.'), list: true },
      out: flag('DIR', 'Where report.html and report.json go; default sallyport-load-test.'),
      yes: flag('', 'Allows more than 200 requests/s or 60 s.'),
      serve: flag('HOST:PORT', 'Runs the upstream that all scenarios need, and sends no load.'),
    },
    load: async () => (await import('./commands/load-test.ts')).runLoadTest,
  },
  {
    name: 'demo',
    about:
      'Starts everything on loopback with fresh keys and prints commands to try. With --check, it runs them itself.',
    example: 'sallyport demo --check',
    flags: { check: flag('', 'Sends one request of each kind of traffic, prints pass or fail, and exits.') },
    raw: true,
    load: async () => (await import('./commands/demo.ts')).runDemo,
  },
  {
    name: 'version',
    about: 'Prints the version. With --json, also the versions of Node, OpenSSL and the platform, for a bug report.',
    example: 'sallyport version --json',
    flags: json,
    load: async () => (await import('./commands/version.ts')).version,
  },
]

const CONFIG_ACTIONS = {
  validate: 'Checks the configuration and the files that it names, without starting anything.',
  print: 'Prints each value and its source. Secrets are masked.',
  schema: 'Prints the JSON Schema of the configuration file.',
} as const

function configCommand(action: keyof typeof CONFIG_ACTIONS, component: ComponentName): Command {
  return {
    name: `config ${action} ${component}`,
    about: CONFIG_ACTIONS[action],
    example: `sallyport config ${action} ${component}${action === 'schema' ? '' : ` --config ${component}.yaml`}`,
    flags: {},
    component,
    load: async () => {
      const commands = await import('./commands/config.ts')
      return (args, io) => commands[action](component, args, io)
    },
  }
}

const STOP_FLAG: Flags = {
  'termination-grace': flag(
    'TIME',
    'Time that Kubernetes or systemd allows for a stop. The check reports whether a drain fits into it.',
  ),
}

/** Flags of `check` besides `--json`. */
const CHECK_FLAGS: Readonly<Record<ComponentName, Flags>> = {
  client: { deep: flag('', 'Also measures how long the connection to the server may be idle. Takes 10 s longer.') },
  router: {},
  server: {
    outside: flag('', 'Also calls the public name, while listening in place of the server, which must not be running.'),
    'outside.ca': flag('FILE', 'Authorities (PEM) to check the public name with. Default: those of the system.'),
    deep: flag('', 'With --outside: also runs the checks that take a minute.'),
  },
}

function checkCommand(component: ComponentName): Command {
  return {
    name: `check ${component}`,
    about: `Checks what the ${component} needs, step by step, and reports what is missing. Changes nothing. Exits with code 5 if something fails.`,
    example: `sallyport check ${component} --config ${component}.yaml`,
    ...(component === 'client' ? { positionals: ['[TARGET]'] } : {}),
    flags: { ...json, ...STOP_FLAG, ...CHECK_FLAGS[component] },
    component,
    load: async () => {
      const { check } = await import('./commands/check.ts')
      return (args, io) => check(component, args, io)
    },
  }
}

const archiveFlags: Flags = { out: flag('FILE', 'The archive (ZIP) to write. Required.'), ...force }

const DIAGS: readonly Command[] = [
  {
    name: 'diag',
    about:
      'Writes an archive for a bug report: configuration, check, status, metrics, the end of the log, limits and versions of the components on this machine, without secrets. For a component that is not running, use `diag client` with its flags.',
    example: 'sallyport diag --out report.zip',
    flags: {
      ...archiveFlags,
      profile: flag('SECONDS', 'Adds a CPU profile of this many seconds (at most 30).'),
      ...adminOnly,
    },
    load: async () => (await import('./commands/diag.ts')).diag,
  },
  ...(Object.keys(COMPONENTS) as ComponentName[]).map(
    (component): Command => ({
      name: `diag ${component}`,
      about: `As \`diag\`, for a ${component} that is not running. Takes its flags.`,
      example: `sallyport diag ${component} --out report.zip --config ${component}.yaml`,
      ...(component === 'client' ? { positionals: ['[TARGET]'] } : {}),
      flags: {
        ...archiveFlags,
        'log.file': flag('FILE|-', 'Log file, or `-` for stdin. Its last 1 MiB is added, redacted.'),
      },
      component,
      load: async () => {
        const { diagOf } = await import('./commands/diag.ts')
        return (args, io) => diagOf(component, args, io)
      },
    }),
  ),
]

const CHECKS: readonly Command[] = [
  ...(Object.keys(COMPONENTS) as ComponentName[]).map(checkCommand),
  {
    name: 'check',
    about:
      'With --via, asks the connected clients of a runtime whether the targets of their routes accept connections. `check client`, `check server` and `check router` check what a component needs.',
    example: 'sallyport check --via demo',
    flags: { via: flag('RUNTIME', 'The runtime whose clients are asked. Required.'), ...adminFlags },
    load: async () => (await import('./commands/check.ts')).checkVia,
  },
]

const CONFIGS = (Object.keys(CONFIG_ACTIONS) as (keyof typeof CONFIG_ACTIONS)[]).flatMap(action =>
  (Object.keys(COMPONENTS) as ComponentName[]).map(component => configCommand(action, component)),
)

/** Every command, in the order of `sallyport --help`. */
export const COMMANDS: readonly Command[] = [
  ...SERVICES,
  ...CERTS,
  ...TOKENS,
  ROUTES,
  ...CONFIGS,
  ...CHECKS,
  ...DIAGS,
  ...LIFECYCLE,
  ...WEBHOOKS,
  ...INBOX,
  ...INSPECT,
  ...OTHERS,
  ...COMPLETIONS,
]

/** All flags of a command: its own and the settings of its component. */
export function flagsOf(command: Command): Flags {
  const settings: Settings = command.component ? COMPONENTS[command.component] : {}
  const config = command.component
    ? { config: flag('FILE', 'YAML file with settings. Flags and environment variables override it.') }
    : {}
  return { ...config, ...command.flags, ...settingFlags(settings) }
}

function settingFlags(settings: Settings): Flags {
  const entries = Object.entries(settings).map(([name, setting]) => {
    const { placeholder, list } = setting.kind
    return [name, { about: describe(setting), placeholder, list }]
  })
  return Object.fromEntries(entries)
}

function describe({ kind, about, default: fallback }: Setting): string {
  const hasDefault = fallback !== undefined && kind.placeholder !== ''
  return [about, kind.list ? 'May repeat.' : '', hasDefault ? `Default ${fallback}.` : ''].filter(Boolean).join(' ')
}

function presetFlags(): Flags {
  const entries = Object.entries(COMPONENTS.router).filter(([name]) => name.startsWith('preset.'))
  return settingFlags(Object.fromEntries(entries))
}
