// Where the issuer sends the browser back to: the token is taken out of the page, and the address with the code out of the history.
sessionStorage.setItem("moorage.key", document.body.dataset.key);
location.replace("./");
