import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import { postgresFolder } from './needs.ts'
import { lastingPort } from './ports.ts'
import type { Secrets } from './secrets.ts'
import { until } from './until.ts'

interface PostgresProgramOptions {
  /** Takes connections over TCP with TLS alone, and by password. */
  readonly tls?: Pick<Secrets, 'server'>
  /** More lines of its configuration. */
  readonly lines?: readonly string[]
  /** Where its folder is made; default the system's for temporary files. */
  readonly under?: string
}

export const PASSWORD = 'opensesame'

/** A real PostgreSQL of the test's own, as Debian's user of that name where the test is root, which it refuses to be. */
export class Postgres {
  readonly port: number
  readonly folder: string
  readonly #user: { uid?: number; gid?: number }
  #child: ChildProcess | undefined

  static async start({ tls, lines = [], under = tmpdir() }: PostgresProgramOptions = {}): Promise<Postgres> {
    const folder = mkdtempSync(join(under, 'sallyport-postgres-'))
    const postgres = new Postgres(await lastingPort(), folder)
    postgres.#make(tls, lines)
    await postgres.start()
    await postgres.query('CREATE DATABASE sallyport')
    return postgres
  }

  private constructor(port: number, folder: string) {
    this.port = port
    this.folder = folder
    this.#user = process.getuid?.() === 0 ? accountOf('postgres') : {}
  }

  #make(tls: PostgresProgramOptions['tls'], lines: readonly string[]): void {
    const file = (name: string, text: string) => {
      writeFileSync(this.#at(name), text, { mode: 0o600 })
      if (this.#user.uid !== undefined) chownSync(this.#at(name), this.#user.uid, this.#user.gid!)
    }
    chmodSync(this.folder, 0o755)
    if (this.#user.uid !== undefined) chownSync(this.folder, this.#user.uid, this.#user.gid!)
    file('password', PASSWORD)
    const how = ['--auth=trust', '--username=sallyport', `--pwfile=${this.#at('password')}`, '--no-sync', '--locale=C']
    const run = { ...this.#user, cwd: this.folder, stdio: 'ignore' as const }
    execFileSync(join(postgresFolder()!, 'initdb'), ['-D', this.#at('data'), '--encoding=UTF8', ...how], run)
    const settings = [
      `port = ${this.port}`,
      "listen_addresses = '127.0.0.1, 127.0.0.2'",
      `unix_socket_directories = '${this.folder}'`,
    ]
    if (tls !== undefined) {
      file('cert.pem', tls.server.cert)
      file('key.pem', tls.server.key)
      settings.push('ssl = on', `ssl_cert_file = '${this.#at('cert.pem')}'`, `ssl_key_file = '${this.#at('key.pem')}'`)
      file('data/pg_hba.conf', 'local all all trust\nhostssl all all all scram-sha-256\n')
    }
    file('data/postgresql.auto.conf', [...settings, ...lines, ''].join('\n'))
  }

  #at(name: string): string {
    return join(this.folder, name)
  }

  get url(): string {
    return `postgres://sallyport@127.0.0.1:${this.port}/sallyport`
  }

  async start(): Promise<void> {
    await until(async () => {
      const { exitCode, signalCode } = this.#child ?? { exitCode: 0, signalCode: null }
      // After a kill it may find that what it had started has not all ended.
      if (exitCode !== null || signalCode !== null) this.#spawn()
      return await this.query('SELECT 1').then(
        () => true,
        () => false,
      )
    }, 'PostgreSQL answers')
  }

  #spawn(): void {
    const program = join(postgresFolder()!, 'postgres')
    this.#child = spawn(program, ['-D', this.#at('data')], { ...this.#user, cwd: this.folder, stdio: 'ignore' })
  }

  /** As the owner of the cluster, through its socket. */
  async query(text: string, database = 'postgres'): Promise<Record<string, unknown>[]> {
    const client = new Client({ host: this.folder, port: this.port, user: 'sallyport', database })
    client.on('error', () => {})
    await client.connect()
    try {
      return (await client.query<Record<string, unknown>>(text)).rows
    } finally {
      await client.end()
    }
  }

  /** Takes away what an inbox has made. A connection that was left behind may still be at work, and hold what is to go. */
  async clear(): Promise<void> {
    const others = `FROM pg_stat_activity WHERE datname = 'sallyport' AND pid <> pg_backend_pid()`
    await this.query(`SELECT pg_terminate_backend(pid, 60000) ${others}`, 'sallyport')
    await this.query('DROP SCHEMA IF EXISTS sallyport_inbox CASCADE', 'sallyport')
  }

  /** It and what it started: each of them is in a session of its own. */
  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#child!
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean)
    for (const each of [String(pid), ...children]) {
      try {
        process.kill(Number(each), signal)
      } catch {
        // It has ended meanwhile.
      }
    }
  }

  async kill(): Promise<void> {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    // It starts no other one meanwhile.
    child.kill('SIGSTOP')
    this.#signal('SIGKILL')
    await gone
    // What it had started may hold its port for a moment longer.
    await until(() => isRefused(this.port), 'PostgreSQL is gone')
  }

  /** It answers nothing, but keeps its connections. */
  pause(): void {
    this.#signal('SIGSTOP')
  }

  resume(): void {
    this.#signal('SIGCONT')
  }

  async stop(): Promise<void> {
    await this.kill()
    rmSync(this.folder, { recursive: true, force: true })
  }
}

async function isRefused(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ECONNREFUSED'
  } finally {
    socket.destroy()
  }
}

export function accountOf(name: string): { uid?: number; gid?: number } {
  const fields = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
    .find(([user]) => user === name)
  if (fields === undefined) throw new Error(`there is no user ${name}`)
  return { uid: Number(fields[2]), gid: Number(fields[3]) }
}
