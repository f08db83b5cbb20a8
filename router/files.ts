/** The files that a route table names. */
import { resolve } from 'node:path'
import { isPemText } from './compile-tls.ts'
import type { RouteTable, SecretFile } from './table.ts'

/** Nobody writes a larger table by hand. */
export const MAX_TABLE_BYTES = 4 * 1024 * 1024

/** Each path once. */
export function filesOf(table: RouteTable): string[] {
  const files = new Set<string>()
  for (const { tls } of table.routes) if (tls?.ca !== undefined && !isPemText(tls.ca)) files.add(tls.ca)
  for (const { file } of secretsOf(table)) files.add(file)
  return [...files]
}

/** Resolves their paths from `folder`, in place. */
export function placeFiles(table: RouteTable, folder: string): void {
  for (const { tls } of table.routes) {
    if (tls?.ca !== undefined && !isPemText(tls.ca)) tls.ca = resolve(folder, tls.ca)
  }
  // YAML aliases refer to the same object.
  for (const secret of new Set(secretsOf(table))) secret.file = resolve(folder, secret.file)
}

function secretsOf(table: RouteTable): SecretFile[] {
  return table.routes.flatMap(({ verify, inbox }) => [
    ...(verify?.secrets ?? []),
    ...(inbox?.verify?.secrets ?? []),
    ...(inbox?.resign === undefined ? [] : [inbox.resign.secret]),
  ])
}
