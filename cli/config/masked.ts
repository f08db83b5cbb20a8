import type { Setting } from './setting.ts'

/** A setting's value that anyone may see: without secrets, credentials in a URL, or a query, which may have API keys. */
export function maskedValue(setting: Setting, raw: unknown): string {
  const text = Array.isArray(raw) ? raw.join(',') : String(raw)
  if (setting.secret && !/^https?:\/\/\S+$/.test(text)) return '***'
  return text.replaceAll(/(:\/\/)\S*@/g, '$1***@').replaceAll(/(:\/\/[^\s?#]*[?#])[^\s,]+/g, '$1***')
}
