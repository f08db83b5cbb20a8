import { readFile } from 'node:fs/promises'
import type { Running } from '../../cli/process.ts'

/** What a process reports on its admin listener. `token`: file of the admin token. */
export async function readStatus(child: Running, token: string): Promise<unknown> {
  const authorization = `Bearer ${(await readFile(token, 'utf8')).trim()}`
  const response = await fetch(`http://${await child.address('admin')}/status`, { headers: { authorization } })
  if (!response.ok) throw new Error(`/status answered ${response.status}`)
  return response.json()
}
