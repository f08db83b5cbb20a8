/** Commands for operators, which ask a running server, client or router. */
import { type Command, commandsOf } from '../command.ts'
import { adminAddress, adminFlags, flag, force, listFlag } from './flags.ts'

const session = flag('ID', 'A session, by its id or a prefix of it.')
const runtime = flag('NAME', 'All sessions of this runtime.')
const reason = flag('TEXT', 'Reason to give the client.')
const grace = flag('TIME', 'How long open exchanges may continue; default 30s.')

export const LIFECYCLE: readonly Command[] = [
  ...commandsOf(() => import('../commands/sessions.ts'), {
    sessionsList: {
      name: 'sessions list',
      about: 'Lists the sessions of a server.',
      example: 'sallyport sessions list --runtime demo',
      flags: { runtime: flag('NAME', 'Only sessions of this runtime.'), ...adminFlags },
    },
    sessionsShow: {
      name: 'sessions show',
      about: 'Shows everything about one session.',
      example: 'sallyport sessions show --session 9066e9d5',
      flags: { session, ...adminFlags },
    },
    sessionsDrain: {
      name: 'sessions drain',
      about: 'Asks clients to move to new sessions. Nothing is lost.',
      example: 'sallyport sessions drain --runtime demo',
      flags: { session, runtime, reason, grace, ...adminFlags },
    },
    sessionsClose: {
      name: 'sessions close',
      about: 'Ends sessions at once. Open exchanges are lost, and clients reconnect if they may.',
      example: 'sallyport sessions close --session 9066e9d5',
      flags: { session, runtime, reason, ...adminFlags },
    },
  }),
  {
    name: 'runtimes list',
    about: 'Lists the runtimes that have a session: instances, epoch, streams.',
    example: 'sallyport runtimes list',
    flags: adminFlags,
    load: async () => (await import('../commands/runtimes.ts')).runtimesList,
  },
  {
    name: 'traces',
    about:
      'Shows the latest requests traced by a server that runs with --tracing recent, span by span, including the spans that clients return.',
    example: 'sallyport traces --last 1',
    flags: { last: flag('N', 'How many to show; default 5, at most 100.'), ...adminFlags },
    load: async () => (await import('../commands/traces.ts')).traces,
  },
  ...commandsOf(() => import('../commands/revoke.ts'), {
    revoke: {
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
    },
    revocationsList: {
      name: 'revocations list',
      about: 'Lists all revocations: those made by hand, and those from the file, the directory and the URL.',
      example: 'sallyport revocations list',
      flags: adminFlags,
    },
    revocationsRemove: {
      name: 'revocations remove',
      about: 'Removes a revocation on all replicas.',
      example: 'sallyport revocations remove 5d41402abc4b',
      positionals: ['ID'],
      flags: adminFlags,
    },
  }),
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
    load: async () => (await import('../commands/drain.ts')).drain,
  },
]

const inboxFlags = {
  runtime: flag('NAME', 'Only webhooks of this runtime.'),
  lane: flag('LANE', 'Only webhooks of this lane, as `inbox list` shows it.'),
  state: flag('waiting|dead|delivered', 'Only webhooks in this state.'),
  since: flag('TIME', 'Only webhooks that arrived after this time: 2026-11-21T08:00Z or -1h.'),
}

const everyFlag = { ...inboxFlags, ...adminFlags }
const ofRuntime = { runtime: flag('NAME', 'The runtime. Required.'), ...adminFlags }

export const INBOX_COMMANDS: readonly Command[] = commandsOf(() => import('../commands/inbox.ts'), {
  inboxList: {
    name: 'inbox list',
    about: 'Lists the webhooks that servers keep.',
    example: 'sallyport inbox list --state dead',
    flags: { ...inboxFlags, limit: flag('N', 'How many at most, newest first; default 200.'), ...adminFlags },
  },
  inboxShow: {
    name: 'inbox show',
    about: 'Shows one webhook, with its head.',
    example: 'sallyport inbox show 5d41402a',
    positionals: ['ID'],
    flags: adminFlags,
  },
  inboxReplay: {
    name: 'inbox replay',
    about: 'Delivers dead letters again, and waiting webhooks at once. Each keeps its id.',
    example: 'sallyport inbox replay --runtime demo --state dead',
    positionals: ['[ID]'],
    flags: everyFlag,
  },
  inboxDrop: {
    name: 'inbox drop',
    about: 'Deletes webhooks for good.',
    example: 'sallyport inbox drop 5d41402a',
    positionals: ['[ID]'],
    flags: everyFlag,
  },
  inboxPause: {
    name: 'inbox pause',
    about: 'Stops deliveries to a runtime until `inbox resume`. New webhooks are stored.',
    example: 'sallyport inbox pause --runtime demo',
    flags: ofRuntime,
  },
  inboxResume: {
    name: 'inbox resume',
    about: 'Ends an `inbox pause`.',
    example: 'sallyport inbox resume --runtime demo',
    flags: ofRuntime,
  },
  inboxExport: {
    name: 'inbox export',
    about: 'Prints webhooks with head and body, one JSON object per line. The body is base64.',
    example: 'sallyport inbox export --runtime demo',
    flags: { ...inboxFlags, limit: flag('N', 'How many at most, newest first; default all.'), ...adminFlags },
  },
})

export const INSPECT: readonly Command[] = commandsOf(() => import('../commands/inspect.ts'), {
  inspectTail: {
    name: 'inspect tail',
    about: 'Shows the latest requests of a client that runs with `--inspect`, and new ones as they arrive.',
    example: 'sallyport inspect tail',
    flags: { 'no-follow': flag('', 'Shows the requests so far and exits.'), ...adminFlags },
  },
  inspectShow: {
    name: 'inspect show',
    about: 'Shows one request: heads, bodies, messages, timings.',
    example: 'sallyport inspect show 3fa9-1c',
    positionals: ['ID'],
    flags: adminFlags,
  },
  inspectReplay: {
    name: 'inspect replay',
    about: 'Sends a request to the target again, and shows both answers side by side.',
    example: 'sallyport inspect replay 3fa9-1c --yes',
    positionals: ['ID'],
    flags: {
      yes: flag('', 'Allows methods that are not safe. The target may act on the request twice.'),
      method: flag('METHOD', 'Replaces the method.'),
      path: flag('PATH', 'Replaces the path and its query.'),
      header: listFlag('"NAME: VALUE"', 'Adds or replaces a header field; may repeat.'),
      body: flag('FILE', 'Replaces the body.'),
      ...adminFlags,
    },
  },
  inspectHar: {
    name: 'inspect har',
    about: 'Writes all requests to a HAR 1.2 file, for the network panel of a browser.',
    example: 'sallyport inspect har --out requests.har',
    flags: { out: flag('FILE', 'The file to write. Required.'), ...force, ...adminAddress },
  },
  inspectCurl: {
    name: 'inspect curl',
    about: 'Prints a request as a curl command. Fill in what was redacted.',
    example: 'sallyport inspect curl 3fa9-1c',
    positionals: ['ID'],
    flags: adminAddress,
  },
})

export const STATUS: readonly Command[] = [
  {
    name: 'status',
    about: 'Shows the state of the components on this machine: sessions, streams and when they connected.',
    example: 'sallyport status --watch',
    flags: { watch: flag('', 'Refreshes every two seconds, until Ctrl-C.'), ...adminFlags },
    load: async () => (await import('../commands/status.ts')).status,
  },
  {
    name: 'ui',
    about: 'Prints a link to the web page of a running component. The link works once, within ten minutes.',
    example: 'sallyport ui --admin http://127.0.0.1:9091',
    flags: adminFlags,
    load: async () => (await import('../commands/ui.ts')).ui,
  },
]
