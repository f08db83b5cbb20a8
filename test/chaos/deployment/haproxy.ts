/** The HAProxy that `deploy/haproxy` describes, in front of the servers of a deployment. */
import { appendFile, copyFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { program } from '../../support/needs.ts'
import { freePort, type ProxyProgram, startProxyProgram } from '../../support/proxy-program.ts'
import type { DeploymentFiles } from './files.ts'

const DESCRIBED = resolve(import.meta.dirname, '../../../deploy/haproxy/haproxy.cfg')
/** What that file expects of the servers. */
export const HEALTH_PATH = '/lb'
export const DRAIN_DELAY_S = 3

/** `ports`: the two servers' public listeners. `pace`: as in the options of the deployment. */
export async function startHaproxy(files: DeploymentFiles, ports: readonly number[], pace = 1): Promise<ProxyProgram> {
  const folder = join(files.folder, 'haproxy')
  await mkdir(folder)
  const site = join(folder, 'site.pem')
  await copyFile(files.at('server.pem'), site)
  await appendFile(site, await readFile(files.at('server-key.pem')))
  const port = await freePort()
  const path = join(folder, 'haproxy.cfg')
  const edits: ReadonlyArray<readonly [string, string]> = [
    ['bind :443', `bind 127.0.0.1:${port}`],
    ['/etc/haproxy/site.pem', site],
    ['/etc/haproxy/ca.pem', files.at('ca.pem')],
    ['tunnels.example.com', 'localhost'],
    ['timeout connect 5s', `timeout connect ${Math.round(5000 * pace)}`],
    ['inter 1s', `inter ${Math.round(1000 * pace)}`],
    ['10.0.0.7:443', `127.0.0.1:${ports[0]}`],
    ['10.0.0.8:443', `127.0.0.1:${ports[1]}`],
  ]
  await writeFile(path, edits.reduce(edit, await readFile(DESCRIBED, 'utf8')))
  return startProxyProgram(program('haproxy'), ['-db', '-f', path], port)
}

function edit(text: string, [from, to]: readonly [string, string]): string {
  if (!text.includes(from)) throw new Error(`${DESCRIBED} has no ${from}`)
  return text.replaceAll(from, to)
}
