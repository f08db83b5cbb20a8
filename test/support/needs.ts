/**
 * The one table of programs and rights that some suites need, and the switch that such a suite uses:
 *
 *     describe.runIf(needs('nginx', 'go'))('behind a real nginx', () => ...)
 *
 * `npm test` reads the same table: it installs what is missing where it may, and names what did not run where it may
 * not. With `CI=true` or `npm test -- --all` a need that is not met is a failure.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { findProgram, isExecutable } from '../../cli/demo/programs.ts'

export interface NeedRow {
  /** Undefined if it is met, else the reason why not, in a few words. */
  readonly missing: () => string | undefined
  /** Debian packages that meet it. */
  readonly packages: readonly string[]
  readonly remedy: string
  /** Data that a user's clone does not have: reported, but no failure even where everything has to run. */
  readonly optional?: boolean
}

const programRow = (program: string, packages: readonly string[]): NeedRow => ({
  missing: () => (findProgram(program) === undefined ? `no program "${program}"` : undefined),
  packages,
  remedy: `install ${packages.join(' ')} (Debian's name)`,
})

/** A program that Debian does not have: its suite is reported where it does not run, and fails nobody. */
const elsewhereRow = (program: string, source: string): NeedRow => ({
  missing: () => (findProgram(program) === undefined ? `no program "${program}"` : undefined),
  packages: [],
  remedy: `put it on the PATH (${source})`,
  optional: true,
})

export const NEEDS = {
  nginx: programRow('nginx', ['nginx-light']),
  haproxy: programRow('haproxy', ['haproxy']),
  apache: programRow('apache2', ['apache2-bin']),
  redis: programRow('redis-server', ['redis-server']),
  postgres: {
    missing: () => (postgresFolder() === undefined ? 'no program "postgres"' : undefined),
    packages: ['postgresql'],
    remedy: "install postgresql (Debian's name)",
  },
  pgbouncer: programRow('pgbouncer', ['pgbouncer']),
  prometheus: programRow('prometheus', ['prometheus']),
  chromium: programRow('chromium', ['chromium']),
  go: { ...programRow('go', ['golang-go', 'ca-certificates']), missing: () => missingGo(MIN_GO_MINOR) },
  // What others wrote in Go wants a newer one than Debian has.
  'new-go': { ...elsewhereRow('go', 'https://go.dev/dl'), missing: () => missingGo(NEW_GO) },
  gcc: programRow('gcc', ['gcc', 'libc6-dev']),
  curl: programRow('curl', ['curl']),
  unzip: programRow('unzip', ['unzip']),
  script: programRow('script', ['bsdutils']),
  zsh: programRow('zsh', ['zsh']),
  fish: programRow('fish', ['fish']),
  openssl: programRow('openssl', ['openssl']),
  netns: {
    missing: missingNamespaces,
    packages: ['iproute2'],
    remedy: 'run as root on Linux, with iproute2 installed',
  },
  root: {
    missing: () => (process.getuid?.() === 0 ? undefined : 'not root'),
    packages: [],
    remedy: 'run as root: files of other users are made',
  },
  iptables: programRow('iptables', ['iptables']),
  setpriv: programRow('setpriv', ['util-linux']),
  systemd: programRow('systemd-analyze', ['systemd']),
  boot: {
    missing: missingBoot,
    packages: ['systemd', 'iproute2', 'util-linux'],
    remedy: 'run as root on Linux, with systemd and iproute2 installed, outside a container',
    optional: true,
  },
  testssl: programRow('testssl', ['testssl.sh']),
  sslscan: programRow('sslscan', ['sslscan']),
  slowhttptest: programRow('slowhttptest', ['slowhttptest']),
  helm: elsewhereRow('helm', 'go install helm.sh/helm/v4/cmd/helm@latest'),
  helm3: elsewhereRow('helm3', 'go install helm.sh/helm/v3/cmd/helm@latest, renamed'),
  'oauth2-proxy': elsewhereRow('oauth2-proxy', 'https://github.com/oauth2-proxy/oauth2-proxy: go build'),
  h2spec: elsewhereRow('h2spec', 'https://github.com/summerwind/h2spec'),
  wstest: elsewhereRow('wstest', 'https://github.com/crossbario/autobahn-testsuite'),
  history: {
    missing: () => (isCommit(PREVIOUS_RELEASE) ? undefined : `no commit ${PREVIOUS_RELEASE} in this clone`),
    packages: [],
    remedy: 'fetch the whole history',
    optional: true,
  },
  vectors: {
    missing: () => (vectors === undefined ? 'the published test vectors are not part of a clone' : undefined),
    packages: [],
    remedy: 'set TEST_VECTORS to their folder',
    optional: true,
  },
} as const satisfies Record<string, NeedRow>

/** The last tag before what is here; as long as there is none, the commit before the structure of today. */
export const PREVIOUS_RELEASE: string =
  git('describe', '--tags', '--abbrev=0', '--match', 'v*', 'HEAD^') || '802b7cd4ece4'

function isCommit(name: string): boolean {
  return git('cat-file', '-t', `${name}^{commit}`) === 'commit'
}

function git(...args: string[]): string {
  const { status, stdout } = spawnSync('git', args, { cwd: import.meta.dirname, encoding: 'utf8' })
  return status === 0 ? stdout.trim() : ''
}

export type Need = keyof typeof NEEDS

/** Whether all of `names` are met on this machine. Each is looked at once per process. */
export function needs(...names: Need[]): boolean {
  return names.every(name => whyMissing(name) === undefined)
}

const looked = new Map<Need, string | undefined>()

/** Why `name` is not met, or undefined. */
export function whyMissing(name: Need): string | undefined {
  if (!looked.has(name)) looked.set(name, NEEDS[name].missing())
  return looked.get(name)
}

/** Forgets what was looked at, after an installation. */
export function lookAgain(): void {
  looked.clear()
}

/** As {@link findProgram}, for a suite that runs only where the program is. */
export function program(name: string): string {
  const path = findProgram(name)
  if (path === undefined) throw new Error(`no program "${name}"`)
  return path
}

/** Folder of the published test vectors (`wycheproof/`, `mozilla/`), or undefined. */
export const vectors: string | undefined = findVectors()

/** Whether the long tests run (`npm run test:long`): full sizes and counts. */
export const long: boolean = process.env.TEST_LONG === '1'

/** Whether this is `npm test` without more: it answers within minutes, from a part of each suite. */
export const short: boolean = process.env.TEST_SHORT === '1'

function findVectors(): string | undefined {
  const folder = process.env.TEST_VECTORS ?? resolve(import.meta.dirname, '../vectors')
  return existsSync(join(folder, 'wycheproof')) ? folder : undefined
}

/** Debian has a folder for each version, on nobody's PATH: the newest. */
export function postgresFolder(): string | undefined {
  const found = findProgram('postgres')
  if (found !== undefined) return dirname(found)
  const all = '/usr/lib/postgresql'
  const versions = existsSync(all) ? readdirSync(all).sort((a, b) => Number(b) - Number(a)) : []
  return versions.map(version => join(all, version, 'bin')).find(folder => isExecutable(join(folder, 'postgres')))
}

/** What our modules in Go need: Debian 12 has it. */
const MIN_GO_MINOR = 19
/** What the suites and services of others need. */
const NEW_GO = 26

function missingGo(least: number): string | undefined {
  const go = findProgram('go')
  if (go === undefined) return 'no program "go"'
  const { stdout } = spawnSync(go, ['version'], { encoding: 'utf8', env: { ...process.env, GOTOOLCHAIN: 'local' } })
  const [version, minor] = /go1\.(\d+)/.exec(stdout ?? '') ?? []
  return Number(minor) >= least ? undefined : `${version ?? 'this Go'} is older than 1.${least}`
}

/** A container has systemd, and may not mount what systemd needs. */
function missingBoot(): string | undefined {
  if (!existsSync('/lib/systemd/systemd')) return 'no /lib/systemd/systemd'
  if (!process.execPath.startsWith(resolve(import.meta.dirname, '../..'))) return 'this Node is not the pinned one'
  const mounts =
    'mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r && cd /mnt && mount -t overlay o -o lowerdir=/,upperdir=u,workdir=w r'
  const script = `${mounts} && mount -t cgroup2 c /mnt/u`
  const tried = spawnSync('unshare', ['--mount', '--pid', '--fork', 'sh', '-c', script], { stdio: 'ignore' })
  return tried.status === 0 ? missingNamespaces() : 'no right to mount what systemd needs'
}

function missingNamespaces(): string | undefined {
  if (process.platform !== 'linux') return 'network namespaces are Linux'
  const ip = findProgram('ip')
  if (ip === undefined) return 'no program "ip"'
  const tried = spawnSync('unshare', ['--net', ip, 'link', 'show', 'lo'], { stdio: 'ignore' })
  return tried.status === 0 ? undefined : 'no right to make a network namespace'
}
