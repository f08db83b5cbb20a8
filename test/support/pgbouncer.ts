import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { program } from './needs.ts'
import { lastingPort } from './ports.ts'
import { accountOf, type Postgres } from './postgres.ts'
import { until } from './until.ts'

/** A real pooler of the test's own in front of PostgreSQL, as a user that is not root, which it refuses to be. */
export class PgBouncer {
  readonly port: number
  readonly #child: ChildProcess
  readonly #folder: string

  /** `lines`: more of its configuration. */
  static async start(postgres: Postgres, lines: readonly string[]): Promise<PgBouncer> {
    const pooler = new PgBouncer(await lastingPort(), postgres, lines)
    await until(() => pooler.#answers(), 'PgBouncer answers')
    return pooler
  }

  private constructor(port: number, postgres: Postgres, lines: readonly string[]) {
    this.port = port
    this.#folder = mkdtempSync(join(tmpdir(), 'sallyport-pgbouncer-'))
    const user = process.getuid?.() === 0 ? accountOf('postgres') : {}
    chmodSync(this.#folder, 0o755)
    const file = (name: string) => join(this.#folder, name)
    writeFileSync(file('users'), '"sallyport" ""\n')
    const configuration = [
      ...['[databases]', `sallyport = host=127.0.0.1 port=${postgres.port}`],
      ...['[pgbouncer]', 'listen_addr = 127.0.0.1', `listen_port = ${port}`, 'unix_socket_dir ='],
      ...['auth_type = trust', `auth_file = ${file('users')}`, ...lines, ''],
    ]
    writeFileSync(file('pgbouncer.ini'), configuration.join('\n'))
    if (user.uid !== undefined) chownSync(this.#folder, user.uid, user.gid!)
    this.#child = spawn(program('pgbouncer'), [file('pgbouncer.ini')], { ...user, stdio: 'ignore' })
  }

  async #answers(): Promise<boolean> {
    const socket = connect(this.port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      return true
    } catch {
      return false
    } finally {
      socket.destroy()
    }
  }

  async stop(): Promise<void> {
    const { exitCode, signalCode } = this.#child
    if (exitCode === null && signalCode === null) {
      this.#child.kill('SIGKILL')
      await once(this.#child, 'exit')
    }
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
