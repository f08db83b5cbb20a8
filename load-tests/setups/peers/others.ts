/** piko, chisel, rathole and `ssh -R`, each with TLS (or SSH) between its ends. peers.md says what was chosen and why. */
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { findProgram } from '../../../cli/demo/programs.ts'
import { freePort } from '../../lib/ports.ts'
import type { SetupMaker } from '../setup.ts'
import { peerSetup } from './peer.ts'

export const piko: SetupMaker = async context => {
  const { secrets, upstreamPort } = context
  const [admin, gossip] = [await freePort(), await freePort()]
  return peerSetup(context, {
    key: 'piko',
    name: 'piko',
    headers: { 'x-piko-endpoint': 'bench' },
    server: async ({ control, edge }) => ({
      command: findProgram('piko')!,
      args: [
        'server',
        ...['--proxy.bind-addr', `127.0.0.1:${edge}`, '--upstream.bind-addr', `127.0.0.1:${control}`],
        ...['--admin.bind-addr', `127.0.0.1:${admin}`, '--cluster.gossip.bind-addr', `127.0.0.1:${gossip}`],
        ...['--upstream.tls.cert', secrets.certificate, '--upstream.tls.key', secrets.key],
        ...['--proxy.access-log.disable', '--log.level', 'warn'],
      ],
    }),
    client: async ({ control }) => ({
      command: findProgram('piko')!,
      args: [
        ...['agent', 'http', 'bench', String(upstreamPort), '--connect.url', `https://localhost:${control}`],
        ...['--connect.tls.root-cas', secrets.ca, '--access-log.disable', '--log.level', 'warn'],
      ],
    }),
  })
}

export const chisel: SetupMaker = context => {
  const { secrets, upstreamPort } = context
  return peerSetup(context, {
    key: 'chisel',
    name: 'chisel (TLS, no HTTP)',
    server: async ({ control }) => ({
      command: findProgram('chisel')!,
      args: [
        ...['server', '--host', '127.0.0.1', '--port', String(control), '--reverse'],
        ...['--tls-cert', secrets.certificate, '--tls-key', secrets.key],
      ],
    }),
    client: async ({ control, edge }) => ({
      command: findProgram('chisel')!,
      args: [
        ...['client', '--tls-ca', secrets.ca, `https://localhost:${control}`],
        `R:127.0.0.1:${edge}:127.0.0.1:${upstreamPort}`,
      ],
    }),
  })
}

export const rathole: SetupMaker = context => {
  const { secrets, upstreamPort } = context
  const at = (name: string) => join(secrets.folder, name)
  const transport = (text: string) => `default_token = "load test"\n[TYPE.transport]\ntype = "tls"\n${text}`
  return peerSetup(context, {
    key: 'rathole',
    name: 'rathole (TLS, no HTTP)',
    server: async ({ control, edge }) => {
      const p12 = at('rathole.p12')
      const args = ['pkcs12', '-export', '-in', secrets.certificate, '-inkey', secrets.key, '-out', p12]
      execFileSync('openssl', [...args, '-passout', 'pass:bench'], { stdio: 'ignore' })
      const tls = `[server.transport.tls]\npkcs12 = "${p12}"\npkcs12_password = "bench"\n`
      const path = at('rathole-server.toml')
      await writeFile(
        path,
        `[server]\nbind_addr = "127.0.0.1:${control}"\n${transport(tls).replace('TYPE', 'server')}` +
          `[server.services.bench]\nbind_addr = "127.0.0.1:${edge}"\n`,
      )
      return { command: findProgram('rathole')!, args: ['--server', path], env: { RUST_LOG: 'warn' } }
    },
    client: async ({ control }) => {
      const tls = `[client.transport.tls]\ntrusted_root = "${secrets.ca}"\nhostname = "localhost"\n`
      const path = at(`rathole-client-${control}.toml`)
      await writeFile(
        path,
        `[client]\nremote_addr = "127.0.0.1:${control}"\n${transport(tls).replace('TYPE', 'client')}` +
          `[client.services.bench]\nlocal_addr = "127.0.0.1:${upstreamPort}"\n`,
      )
      return { command: findProgram('rathole')!, args: ['--client', path], env: { RUST_LOG: 'warn' } }
    },
  })
}

export const ssh: SetupMaker = async context => {
  const { secrets, upstreamPort } = context
  const at = (name: string) => join(secrets.folder, name)
  const makeKey = (name: string) =>
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', at(name)], { stdio: 'ignore' })
  const suffix = String(await freePort())
  makeKey(`ssh-host-${suffix}`)
  makeKey(`ssh-user-${suffix}`)
  await chmod(secrets.folder, 0o700)
  // sshd insists on this folder. Debian creates it when the service starts.
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 })
  const user = process.env.USER ?? execFileSync('id', ['-un'], { encoding: 'utf8' }).trim()
  return peerSetup(context, {
    key: 'ssh',
    name: 'ssh -R (no HTTP)',
    server: async ({ control }) => {
      const path = at(`sshd-${suffix}.conf`)
      await writeFile(
        path,
        `ListenAddress 127.0.0.1:${control}
HostKey ${at(`ssh-host-${suffix}`)}
AuthorizedKeysFile ${at(`ssh-user-${suffix}.pub`)}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding remote
LogLevel ERROR
`,
      )
      return { command: findProgram('sshd')!, args: ['-D', '-e', '-f', path] }
    },
    client: async ({ control, edge }) => ({
      command: findProgram('ssh')!,
      args: [
        ...['-N', '-p', String(control), '-i', at(`ssh-user-${suffix}`), '-F', 'none', '-o', 'BatchMode=yes'],
        ...['-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null', '-o', 'LogLevel=ERROR'],
        ...['-o', 'ExitOnForwardFailure=yes', '-R', `127.0.0.1:${edge}:127.0.0.1:${upstreamPort}`],
        `${user}@127.0.0.1`,
      ],
    }),
  })
}
